// SPDX-License-Identifier: Apache-2.0
#include "src/data/file_tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ios>
#include <mutex>
#include <system_error>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/text.h"
#include "src/data/image_files.h"

namespace octet {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kBlock = 512;

/// Returns the text of a header field, up to its first zero byte.
std::string field(const std::string& header, size_t start, size_t size) {
  const std::string text = header.substr(start, size);
  return text.substr(0, text.find('\0'));
}

/// Returns an octal number that is padded with spaces or zero bytes; nullopt if it is none.
std::optional<uint64_t> octal(const std::string& header, size_t start, size_t size) {
  uint64_t value = 0;
  bool digits = false;
  for (const char c : field(header, start, size)) {
    if (c == ' ') {
      if (digits) break;
      continue;
    }
    if (c < '0' || c > '7') return std::nullopt;
    value = value * 8 + static_cast<uint64_t>(c - '0');  // at most 12 digits: fits
    digits = true;
  }
  return digits ? std::optional(value) : std::nullopt;
}

/// Returns the sum of the header's bytes, with spaces in place of the checksum's own field.
uint64_t checksum(const std::string& header) {
  uint64_t sum = 0;
  for (size_t i = 0; i < header.size(); ++i) sum += i >= 148 && i < 156 ? ' ' : static_cast<uint8_t>(header[i]);
  return sum;
}

/// Returns "a/b" for "./a/c/../b/".
std::string plain(const std::string& name) {
  std::string path = fs::path(name).lexically_normal().generic_string();
  while (path.ends_with('/')) path.pop_back();
  return path == "." ? "" : path;
}

/// Returns "a/b/" if all files that are not hidden lie in that folder of `top`, "a/"; "" if there is no such folder.
std::string only_folder(const std::map<std::string, StoredFile>& files, const std::string& top) {
  std::string only;
  for (const auto& [name, file] : files) {
    if (is_hidden(name)) continue;
    const size_t slash = name.find('/', top.size());
    const std::string folder = slash == std::string::npos ? "" : name.substr(0, slash + 1);
    if (folder.empty() || (!only.empty() && folder != only)) return "";
    only = folder;
  }
  return only;
}

}  // namespace

std::string file_start(const std::string& path, uint64_t most) {
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  if (error || size <= most) return read_file(path);  // which says what is wrong
  std::string start(most, '\0');
  std::ifstream(path, std::ios::binary).read(start.data(), static_cast<std::streamsize>(most));
  return start;
}

TarFile::TarFile(const std::string& path) : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) throw data_error(path + ": cannot open: " + std::strerror(errno));
  try {
    struct stat info = {};
    if (::fstat(descriptor_, &info) != 0 || !S_ISREG(info.st_mode)) throw data_error(path + ": not a regular file");
    file_size_ = static_cast<uint64_t>(info.st_size);
    read_headers();
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

TarFile::~TarFile() { ::close(descriptor_); }

void TarFile::damaged(uint64_t offset, const std::string& what) const {
  throw data_error(fmt::format("{}: {} (header at byte {})", path_, what, offset));
}

std::string TarFile::read(uint64_t offset, uint64_t size) const {
  if (offset > file_size_ || size > file_size_ - offset) damaged(offset, "ends early; fetch it again");
  std::string data(size, '\0');
  for (uint64_t done = 0; done < size;) {
    const ssize_t got = ::pread(descriptor_, data.data() + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw data_error(path_ + ": cannot read: " + (got < 0 ? std::strerror(errno) : "ends early"));
    done += static_cast<uint64_t>(got);
  }
  return data;
}

void TarFile::read_headers() {
  if (file_size_ >= 2 && read(0, 2) == "\x1f\x8b") {
    throw data_error(
        fmt::format("{}: compressed by gzip, so its images cannot be read in any order; decompress it once, gunzip -c "
                    "{} > FILE.tar, and name that",
                    path_, shell_word(path_)));
  }
  const std::string empty(kBlock, '\0');
  for (uint64_t at = 0;;) {
    const std::string header = read(at, kBlock);
    if (header == empty) return;
    const auto size = octal(header, 124, 12), sum = octal(header, 148, 8);
    if (!sum || *sum != checksum(header)) damaged(at, "not a tar archive, or damaged: wrong checksum");
    if (!size) damaged(at, "a member of 8 GiB or more; extract the archive");
    const uint64_t contents = at + kBlock;
    if (*size > file_size_ - contents) damaged(at, "ends inside a member; fetch it again");
    const char type = header[156];
    if (type == '0' || type == '\0') {
      const std::string prefix = header.compare(257, 5, "ustar") == 0 ? field(header, 345, 155) : "";
      const std::string name = field(header, 0, 100);
      members_.push_back({prefix.empty() ? name : prefix + "/" + name, contents, *size});
    } else if (type == 'x' || type == 'g') {
      // POSIX extended headers hold times and owners, which do not matter here; a path or a size would.
      const std::string records = read(contents, *size);
      if (records.find(" path=") != std::string::npos || records.find(" size=") != std::string::npos) {
        damaged(at, "has names that ustar cannot hold; extract the archive");
      }
    } else if (type != '5') {
      damaged(at, "holds more than files and folders (links or long names); extract the archive");
    }
    at = contents + (*size + kBlock - 1) / kBlock * kBlock;
  }
}

std::shared_ptr<const TarFile> open_tar(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<const TarFile>> known;
  std::error_code none;
  const auto changed = fs::last_write_time(path, none).time_since_epoch().count();
  const std::lock_guard lock(mutex);
  std::erase_if(known, [](const auto& each) { return each.second.expired(); });
  std::weak_ptr<const TarFile>& entry = known[fmt::format("{} {} {}", path, fs::file_size(path, none), changed)];
  std::shared_ptr<const TarFile> archive = entry.lock();
  if (!archive) entry = archive = std::make_shared<const TarFile>(path);
  return archive;
}

std::string StoredFile::read(uint64_t most) const {
  return archive ? archive->read(offset, std::min(size, most)) : file_start(name, most);
}

FileTree::FileTree(const std::string& root) : root_(root) {
  if (fs::is_directory(root)) return;
  refuse_compressed(root);
  if (ending_of(root) != ".tar" || !fs::exists(root)) return;
  archive_ = open_tar(root);
  for (const TarMember& member : archive_->members()) {
    const std::string name = plain(member.name);
    // Of two members of one name the later one is the file, as tar extracts them.
    files_.insert_or_assign(name, StoredFile{(fs::path(root) / name).string(), archive_, member.offset, member.size});
    for (fs::path folder = fs::path(name).parent_path(); !folder.empty(); folder = folder.parent_path())
      if (!folders_.insert(folder.string()).second) break;
  }
  for (std::string top = only_folder(files_, ""); !top.empty(); top = only_folder(files_, top)) tops_.push_back(top);
}

/// Returns the whole name of a file or folder of the archive; the name as it is if there is none.
std::string FileTree::in_archive(const std::string& name) const {
  for (const std::string& top : tops_) {
    const std::string whole = plain(top + name);
    if (whole.empty() || files_.contains(whole) || folders_.contains(whole)) return whole;
  }
  return plain(name);
}

bool FileTree::is_file(const std::string& name) const {
  return archive_ ? files_.contains(in_archive(name)) : fs::is_regular_file(describe(name));
}

bool FileTree::is_folder(const std::string& name) const {
  if (!archive_) return fs::is_directory(describe(name));
  const std::string whole = in_archive(name);
  return whole.empty() || folders_.contains(whole);
}

StoredFile FileTree::file(const std::string& name) const {
  if (!archive_) return {(fs::path(root_) / name).lexically_normal().string(), nullptr, 0, 0};
  const std::string whole = in_archive(name);
  const auto found = files_.find(whole);
  return found == files_.end() ? StoredFile{(fs::path(root_) / whole).string(), archive_, 0, 0} : found->second;
}

std::vector<StoredFile> FileTree::images(const std::string& folder, LeftOut& left_out) const {
  std::vector<StoredFile> found;
  if (!archive_) {
    add_images_below(describe(folder), found, left_out);
  } else {
    const std::string whole = in_archive(folder), below = whole.empty() ? "" : whole + "/";
    for (auto at = files_.lower_bound(below); at != files_.end() && at->first.starts_with(below); ++at) {
      const std::string inner = at->first.substr(below.size());
      if (inner.starts_with('.') || inner.find("/.") != std::string::npos) continue;
      if (is_image(inner))
        found.push_back(at->second);
      else
        left_out.add(ending_of(inner), inner);
    }
  }
  std::sort(found.begin(), found.end(), [](const StoredFile& a, const StoredFile& b) { return a.name < b.name; });
  return found;
}

}  // namespace octet
