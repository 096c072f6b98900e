// SPDX-License-Identifier: Apache-2.0
#include "src/data/image_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "src/base/error.h"
#include "src/base/text.h"

namespace octet {
namespace {

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

}  // namespace

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
    throw data_error(fmt::format(
        "{}: compressed by gzip, so its pictures cannot be read in any order; decompress it once, gunzip -c "
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

}  // namespace octet
