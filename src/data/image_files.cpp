// SPDX-License-Identifier: Apache-2.0
#include "src/data/image_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <glob.h>

#include <cctype>
#include <filesystem>
#include <system_error>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/text.h"

namespace octet {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 7> kEndings = {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".webp"};
constexpr uint64_t kWhole = std::numeric_limits<uint64_t>::max();

/// Returns the names that a pattern matches, sorted; none if it is no pattern or nothing matches.
std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> names;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) names.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return names;
}

}  // namespace

std::string ending_of(const std::string& name) {
  std::string ending = fs::path(name).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return ending.empty() ? "files without an ending" : ending;
}

bool is_image(const std::string& name) {
  return std::find(kEndings.begin(), kEndings.end(), ending_of(name)) != kEndings.end();
}

bool is_hidden(const std::string& name) { return fs::path(name).filename().string().starts_with('.'); }

void refuse_compressed(const std::string& path) {
  const std::string ending = ending_of(path), inner = path.substr(0, path.size() - ending.size());
  const bool tar = inner.ends_with(".tar");
  if (ending == ".tgz" || (tar && ending == ".gz"))
    throw data_error(fmt::format(
        "{}: compressed, so its images cannot be read in any order; decompress it once, gunzip -k {}, and name {}",
        path, shell_word(path), tar ? inner : inner + ".tar"));
  if (ending == ".zip" || ending == ".7z" || ending == ".rar" || ending == ".tbz2" || ending == ".txz" || tar)
    throw data_error(
        fmt::format("{}: an archive that is not read; unpack it and name the folder, or a .tar of it", path));
}

void LeftOut::add(const std::string& kind, const std::string& name) {
  Kind& of_kind = kinds_[kind];
  if (++of_kind.count == 1 || name < of_kind.first) of_kind.first = name;
}

std::string LeftOut::text() const {
  constexpr size_t kShown = 5;
  std::vector<std::string> kinds;
  for (const auto& [kind, of_kind] : kinds_)
    kinds.push_back(fmt::format("{} {} ({})", kind, with_thousands(of_kind.count), of_kind.first));
  if (kinds.empty()) return "";
  const size_t more = kinds.size() - std::min(kinds.size(), kShown);
  kinds.resize(kinds.size() - more);
  return fmt::format(": left out: {}{}", fmt::join(kinds, ", "),
                     more > 0 ? fmt::format(" and {} more kinds", more) : "");
}

std::vector<std::string> LeftOut::notes(const std::string& root) const {
  if (kinds_.empty()) return {};
  return {fmt::format("{}{}; read are {}", root, text(), fmt::join(kEndings, " "))};
}

ImageHeader header_of(const std::function<std::string(uint64_t most)>& contents, const std::string& name) {
  constexpr uint64_t kStart = uint64_t{128} << 10;  // cameras write less before the pixels, but for large previews
  // A JPEG's header is in its first bytes; in other formats the orientation may follow the pixels.
  if (const std::string start = contents(kStart); start.size() == kStart && start.starts_with("\xFF\xD8")) {
    try {
      return decode_header(start, name);
    } catch (const Error&) {  // perhaps the start is too short: the whole file decides
    }
  }
  return decode_header(contents(kWhole), name);
}

ImageList::ImageList(const std::vector<std::string>& paths, int channels, Orientation orientation)
    : channels_(channels), orientation_(orientation) {
  for (const std::string& path : paths) {
    if (fs::exists(path)) {
      add(path);
      continue;
    }
    const std::vector<std::string> names = matches(path);
    if (names.empty()) throw data_error(path + ": no such file or folder, and a pattern that nothing matches");
    for (const std::string& name : names) add(name);
  }
  if (files_.empty()) throw data_error("no images: name a folder, a .tar or files");
}

void ImageList::add(const std::string& path) {
  const size_t before = files_.size();
  LeftOut left_out;
  if (fs::is_directory(path)) {
    add_images_below(path, files_, left_out);
  } else if (ending_of(path) == ".tar") {
    add_archive(path, left_out);
  } else {
    refuse_compressed(path);
    files_.push_back({path, nullptr, 0, 0});  // whatever its name ends in: reading it tells
    return;
  }
  if (files_.size() == before)
    throw data_error(fmt::format("{}: no image (JPEG, PNG, BMP, WebP){}", path, left_out.text()));
  std::sort(files_.begin() + static_cast<std::ptrdiff_t>(before), files_.end(),
            [](const StoredFile& a, const StoredFile& b) { return a.name < b.name; });
  for (std::string& note : left_out.notes(path)) notes_.push_back(std::move(note));
}

void add_images_below(const std::string& path, std::vector<StoredFile>& images, LeftOut& left_out) {
  for (auto entry = fs::recursive_directory_iterator(path); entry != fs::recursive_directory_iterator(); ++entry) {
    const std::string name = entry->path().string();
    if (is_hidden(name)) {
      if (entry->is_directory()) entry.disable_recursion_pending();
    } else if (entry->is_regular_file() && is_image(name)) {
      images.push_back({name, nullptr, 0, 0});
    } else if (!entry->is_directory()) {
      left_out.add(ending_of(name), fs::relative(entry->path(), path).string());
    }
  }
}

void ImageList::add_archive(const std::string& path, LeftOut& left_out) {
  const std::shared_ptr<const TarFile> archive = open_tar(path);
  for (const TarMember& member : archive->members()) {
    if (is_hidden(member.name)) continue;
    if (is_image(member.name)) {
      files_.push_back({(fs::path(path) / member.name).string(), archive, member.offset, member.size});
    } else {
      left_out.add(ending_of(member.name), member.name);
    }
  }
}

Image ImageList::read(size_t index) const {
  return decode_image(files_.at(index).read(), channels_, describe(index), orientation_);
}

std::optional<ImageHeader> ImageList::header(size_t index) const {
  return header_of([&](uint64_t most) { return files_.at(index).read(most); }, describe(index));
}

}  // namespace octet
