#include "src/data/image_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "src/common/error.h"
#include "src/common/files.h"
#include "src/common/progress.h"

namespace octet {
namespace {

namespace fs = std::filesystem;

bool is_picture(const std::string& name) {
  std::string ending = fs::path(name).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

std::string folder_of(const std::string& name) { return name.substr(0, name.find('/')); }

/// Lines of a class file, without blanks at the end.
std::vector<std::string> read_classes(const std::string& path) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.empty()) continue;
    if (!seen.insert(line).second) throw data_error(path + ": class " + line + " is listed twice");
    names.push_back(line);
  }
  return names;
}

/// "cow, dog, eel and 3 more".
std::string first_few(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kShown));
  const std::string shown = fmt::format("{}", fmt::join(names.begin(), end, ", "));
  return names.size() > kShown ? fmt::format("{} and {} more", shown, names.size() - kShown) : shown;
}

}  // namespace

ImageFolder::ImageFolder(const DatasetSpec& spec) : root_(spec.path), channels_(spec.channels) {
  if (fs::path(spec.path).extension() == ".tar") {
    list_archive(spec.split);
  } else {
    list_folder(spec.split, /*listed=*/!spec.classes.empty() || !spec.class_names.empty());
  }
  std::set<std::string> folders;
  for (const File& file : files_) folders.insert(folder_of(file.name));
  label_files(spec, {folders.begin(), folders.end()});
}

void ImageFolder::list_folder(const std::string& split, bool listed) {
  if (!split.empty()) root_ = (fs::path(root_) / split).string();
  if (!fs::is_directory(root_))
    throw data_error(root_ + ": no such folder; see data.path, data.train, data.validation, data.test");
  for (const auto& folder : fs::directory_iterator(root_)) {
    const std::string name = folder.path().filename().string();
    if (!folder.is_directory() || name.front() == '.') continue;
    const size_t before = files_.size();
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string file = entry.path().filename().string();
      if (entry.is_regular_file() && is_picture(file)) files_.push_back({0, name + "/" + file, 0, 0});
    }
    if (files_.size() == before && !listed) {
      throw data_error(
          folder.path().string() +
          ": class folder without a JPEG or PNG file; remove it, or list the classes in a file and name it "
          "in data.classes");
    }
  }
}

void ImageFolder::list_archive(const std::string& split) {
  archive_ = std::make_unique<TarFile>(root_);
  const std::string prefix = split.empty() ? "" : split + "/";
  for (const TarMember& member : archive_->members()) {
    std::string name = member.name;
    if (name.rfind("./", 0) == 0) name.erase(0, 2);
    if (name.rfind(prefix, 0) != 0) continue;
    name.erase(0, prefix.size());
    if (std::count(name.begin(), name.end(), '/') == 1 && is_picture(name)) {
      files_.push_back({0, name, member.offset, member.size});
    }
  }
  if (!split.empty()) root_ += "/" + split;
}

void ImageFolder::label_files(const DatasetSpec& spec, std::vector<std::string> found) {
  if (found.empty()) throw data_error(root_ + ": no class folder with a JPEG or PNG file");
  const std::string classes = spec.classes.empty() ? "the training set" : spec.classes;
  class_names_ = spec.classes.empty() ? spec.class_names : read_classes(spec.classes);
  if (class_names_.empty()) class_names_ = found;
  std::map<std::string, int> labels;
  std::vector<std::string> absent;
  for (const std::string& name : class_names_) {
    labels.emplace(name, static_cast<int>(labels.size()));
    if (!std::binary_search(found.begin(), found.end(), name)) absent.push_back(name);
  }
  for (File& file : files_) {
    const auto label = labels.find(folder_of(file.name));
    if (label == labels.end()) {
      throw data_error(fmt::format("{}: folder {} is not a class of {}", root_, folder_of(file.name), classes));
    }
    file.label = label->second;
  }
  if (!absent.empty()) {
    say(fmt::format("note: {}: pictures of {} of the {} classes in {}; none of {}", root_, found.size(),
                    class_names_.size(), classes, first_few(absent)));
  }
  // By class and name: the order of a directory listing differs between machines.
  std::sort(files_.begin(), files_.end(),
            [](const File& a, const File& b) { return a.label != b.label ? a.label < b.label : a.name < b.name; });
}

Image ImageFolder::read(size_t index) const {
  const File& file = files_.at(index);
  const std::string name = describe(index);
  if (!archive_) return read_image(name, channels_);
  const std::string data = archive_->read(file.offset, file.size);
  return decode_image(reinterpret_cast<const uint8_t*>(data.data()), data.size(), channels_, name);
}

std::string ImageFolder::describe(size_t index) const { return (fs::path(root_) / files_.at(index).name).string(); }

}  // namespace octet
