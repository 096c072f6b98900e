// SPDX-License-Identifier: Apache-2.0
#include "src/data/image_folder.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>
#include <sstream>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/data/image_files.h"

namespace octet {
namespace {

namespace fs = std::filesystem;

constexpr const char* kInnerFolders = "folders within class folders";
constexpr const char* kInnerFiles = "files in folders within class folders";
constexpr const char* kBesideClasses = "files beside the class folders";

std::string without_dot(const std::string& name) { return name.starts_with("./") ? name.substr(2) : name; }

/// Returns "imagenet/" if all members below the folder `top` lie below that one folder in it, else "".
std::string common_folder(const std::vector<TarMember>& members, const std::string& top) {
  std::string common;
  for (const TarMember& member : members) {
    const std::string name = without_dot(member.name);
    if (!name.starts_with(top) || is_hidden(name)) continue;
    const size_t slash = name.find('/', top.size());
    if (slash == std::string::npos) return "";
    const std::string folder = name.substr(top.size(), slash + 1 - top.size());
    if (!common.empty() && folder != common) return "";
    common = folder;
  }
  return common;
}

std::string folder_of(const std::string& name) { return name.substr(0, name.find('/')); }

/// Returns "cow, dog, eel and 3 more".
std::string first_few(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kShown));
  const std::string shown = fmt::format("{}", fmt::join(names.begin(), end, ", "));
  return names.size() > kShown ? fmt::format("{} and {} more", shown, names.size() - kShown) : shown;
}

}  // namespace

std::vector<std::string> read_classes(const std::string& path) { return parse_classes(read_file(path), path); }

std::vector<std::string> parse_classes(const std::string& text, const std::string& path) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  std::istringstream lines(without_byte_order_mark(text));
  for (std::string line; std::getline(lines, line);) {
    line.erase(line.find_last_not_of(" \t\r") + 1);
    if (line.empty()) continue;
    if (!seen.insert(line).second) throw data_error(path + ": class " + line + " is listed twice");
    names.push_back(line);
  }
  return names;
}

std::string classes_from(const DatasetSpec& spec) {
  return spec.classes.empty() ? "data.class_names or, without it, the training set" : spec.classes;
}

namespace {

class ImageFolder : public Dataset {
 public:
  explicit ImageFolder(const DatasetSpec& spec);
  size_t size() const override { return files_.size(); }
  int channels() const override { return channels_; }
  int label(size_t index) const override { return files_.at(index).label; }
  Image read(size_t index) const override {
    const StoredFile file = stored(index);
    return decode_image(file.read(), channels_, file.name, orientation_);
  }
  std::optional<std::string> file(size_t index) const override { return stored(index).read(); }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  std::string describe(size_t index) const override { return stored(index).name; }
  std::optional<ImageHeader> header(size_t index) const override {
    const StoredFile file = stored(index);
    return header_of([&](uint64_t most) { return file.read(most); }, file.name);
  }
  Orientation orientation() const override { return orientation_; }
  std::vector<std::string> notes() const override { return left_out_.notes(root_); }

 private:
  /// One of perhaps millions, so it holds what differs between files and no more.
  struct File {
    int label = 0;
    std::string name;               ///< CLASS/NAME, below root_
    uint64_t offset = 0, size = 0;  ///< in the archive
  };
  StoredFile stored(size_t index) const;
  void list_folder(const std::string& split, bool listed);  ///< listed: the classes are known
  void list_class(const std::string& name);
  void list_archive(const std::string& split);
  /// Sets the class names to those of `spec`, else to the sorted folders, and the labels of files_ from their folders.
  void label_files(const DatasetSpec& spec);

  std::string root_;
  int channels_;
  Orientation orientation_;
  std::shared_ptr<const TarFile> archive_;  ///< null: a folder on disk
  std::vector<File> files_;
  LeftOut left_out_;
  std::vector<std::string> class_names_;
};

ImageFolder::ImageFolder(const DatasetSpec& spec)
    : root_(spec.path), channels_(spec.channels), orientation_(spec.orientation) {
  if (!fs::is_directory(root_)) refuse_compressed(root_);
  if (fs::path(spec.path).extension() == ".tar") {
    list_archive(spec.split);
  } else {
    list_folder(spec.split, /*listed=*/!spec.classes.empty() || !spec.class_names.empty());
  }
  label_files(spec);
}

StoredFile ImageFolder::stored(size_t index) const {
  const File& file = files_.at(index);
  return {(fs::path(root_) / file.name).string(), archive_, file.offset, file.size};
}

void ImageFolder::list_folder(const std::string& split, bool listed) {
  if (!split.empty()) root_ = (fs::path(root_) / split).string();
  if (!fs::is_directory(root_))
    throw data_error(root_ + ": no such folder; see data.path, data.train, data.validation, data.test");
  for (const auto& folder : fs::directory_iterator(root_)) {
    const std::string name = folder.path().filename().string();
    if (name.front() == '.') continue;
    if (!folder.is_directory()) {
      left_out_.add(kBesideClasses, name);
      continue;
    }
    const size_t before = files_.size();
    list_class(name);
    if (files_.size() == before && !listed) {
      throw data_error(
          folder.path().string() +
          ": class folder without an image (JPEG, PNG, BMP, WebP); remove it, or list the classes in a file and name "
          "it in data.classes or --classes-file");
    }
  }
}

void ImageFolder::list_class(const std::string& name) {
  for (const auto& entry : fs::directory_iterator(fs::path(root_) / name)) {
    const std::string file = name + "/" + entry.path().filename().string();
    if (is_hidden(file)) continue;
    if (entry.is_directory()) {
      left_out_.add(kInnerFolders, file);
    } else if (entry.is_regular_file() && is_image(file)) {
      files_.push_back({0, file, 0, 0});
    } else {
      left_out_.add(ending_of(file), file);
    }
  }
}

void ImageFolder::list_archive(const std::string& split) {
  archive_ = open_tar(root_);
  const std::string prefix = split.empty() ? "" : split + "/";
  const auto list_below = [&](const std::string& top) {
    files_.clear();
    left_out_.clear();
    for (const TarMember& member : archive_->members()) {
      std::string name = without_dot(member.name);
      if (!name.starts_with(top + prefix) || is_hidden(name)) continue;
      name.erase(0, top.size() + prefix.size());
      const auto depth = std::count(name.begin(), name.end(), '/');
      if (depth == 0) {
        left_out_.add(kBesideClasses, name);
      } else if (depth > 1) {
        left_out_.add(kInnerFiles, name);
      } else if (is_image(name)) {
        files_.push_back({0, name, member.offset, member.size});
      } else {
        left_out_.add(ending_of(name), name);
      }
    }
  };
  std::string top;  // folders around the class folders or splits, as long as there is nothing beside them
  list_below(top);
  while (files_.empty()) {
    const std::string folder = common_folder(archive_->members(), top);
    if (folder.empty()) break;
    list_below(top += folder);
  }
  const std::string below = files_.empty() ? split : top + split;
  if (!below.empty()) root_ += "/" + below;
}

void ImageFolder::label_files(const DatasetSpec& spec) {
  std::set<std::string> found;
  for (const File& file : files_) found.insert(folder_of(file.name));
  if (found.empty())
    throw data_error(
        root_ + ": no class folder with an image (JPEG, PNG, BMP, WebP)" + left_out_.text() +
        "; images lie in a folder for each class, CLASS/NAME.jpg: name the folder of these folders; images "
        "without labels are for octet quantize");
  const std::string classes = classes_from(spec);
  class_names_ = spec.classes.empty() ? spec.class_names : read_classes(spec.classes);
  if (class_names_.empty()) class_names_.assign(found.begin(), found.end());
  std::map<std::string, int> labels;
  std::vector<std::string> absent;
  for (const std::string& name : class_names_) {
    labels.emplace(name, static_cast<int>(labels.size()));
    if (!found.contains(name)) absent.push_back(name);
  }
  for (File& file : files_) {
    const auto label = labels.find(folder_of(file.name));
    if (label == labels.end())
      throw data_error(fmt::format("{}: folder {} is not a class of {}", root_, folder_of(file.name), classes));
    file.label = label->second;
  }
  if (!absent.empty()) {
    say(fmt::format("note: {}: images of {} of the {} classes in {}; none of {}", root_, found.size(),
                    class_names_.size(), classes, first_few(absent)));
  }
  // Sorted by class and name, because the order of a directory listing differs between machines.
  std::sort(files_.begin(), files_.end(),
            [](const File& a, const File& b) { return a.label != b.label ? a.label < b.label : a.name < b.name; });
}

}  // namespace

std::unique_ptr<Dataset> open_image_folder(const DatasetSpec& spec) { return std::make_unique<ImageFolder>(spec); }

}  // namespace octet
