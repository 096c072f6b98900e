// SPDX-License-Identifier: Apache-2.0
#include "src/net/import/zip_directory.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/base/error.h"

namespace octet {
namespace {

// Signatures and sizes of the fixed part of each zip record.
constexpr uint32_t kLocalHeader = 0x04034b50, kCentralHeader = 0x02014b50;
constexpr uint32_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kEnd64Locator = 0x07064b50;
constexpr uint64_t kLocalSize = 30, kCentralSize = 46, kEndSize = 22, kEnd64LocatorSize = 20;
constexpr uint64_t kMaxComment = 0xffff;
constexpr uint16_t kZip64Extra = 1;
constexpr uint32_t kInExtra = 0xffffffff;  ///< the value is in the zip64 extra field

}  // namespace

void ZipDirectory::fail(const std::string& what) const { throw data_error(fmt::format("{}: zip: {}", where_, what)); }

std::string_view ZipDirectory::slice(uint64_t offset, uint64_t size) const {
  if (offset > bytes_.size() || size > bytes_.size() - offset) fail("points beyond its end (is the file truncated?)");
  return bytes_.substr(offset, size);
}

template <typename T>
T ZipDirectory::read(uint64_t offset) const {
  T value;
  std::memcpy(&value, slice(offset, sizeof(T)).data(), sizeof(T));
  return value;
}

ZipDirectory::ZipDirectory(std::string_view bytes, std::string where, std::string writer)
    : bytes_(bytes), where_(std::move(where)), writer_(std::move(writer)) {
  const Tail tail = find_tail();
  uint64_t offset = tail.offset;
  for (uint64_t i = 0; i < tail.entries; ++i) offset = read_entry(offset);
}

ZipDirectory::Tail ZipDirectory::find_tail() const {
  if (bytes_.size() < kEndSize) fail("too short");
  const uint64_t last = bytes_.size() - kEndSize;
  const uint64_t first = last - std::min(last, kMaxComment);
  uint64_t end = last;
  while (read<uint32_t>(end) != kEnd) {
    if (end == first) fail("no table of contents at its end (is the file truncated?)");
    --end;
  }
  if (end < kEnd64LocatorSize || read<uint32_t>(end - kEnd64LocatorSize) != kEnd64Locator) {
    return {read<uint16_t>(end + 10), read<uint32_t>(end + 16)};
  }
  const auto end64 = read<uint64_t>(end - kEnd64LocatorSize + 8);
  if (read<uint32_t>(end64) != kEnd64) fail("no zip64 table of contents where its locator points");
  return {read<uint64_t>(end64 + 32), read<uint64_t>(end64 + 48)};
}

/// Reads the central header at `offset` and returns the offset of the next one.
uint64_t ZipDirectory::read_entry(uint64_t offset) {
  if (read<uint32_t>(offset) != kCentralHeader) fail("damaged table of contents");
  const auto flags = read<uint16_t>(offset + 8), method = read<uint16_t>(offset + 10);
  const auto name_size = read<uint16_t>(offset + 28), extra_size = read<uint16_t>(offset + 30);
  const auto comment_size = read<uint16_t>(offset + 32);
  const std::string name(slice(offset + kCentralSize, name_size));
  uint64_t compressed = read<uint32_t>(offset + 20), size = read<uint32_t>(offset + 24);
  uint64_t header = read<uint32_t>(offset + 42);

  // The zip64 extra field holds, in this order, the values that do not fit 32 bits.
  uint64_t extra = offset + kCentralSize + name_size;
  const uint64_t next = extra + extra_size + comment_size;
  for (const uint64_t end = extra + extra_size; end - extra >= 4;) {
    const auto id = read<uint16_t>(extra), length = read<uint16_t>(extra + 2);
    if (length > end - extra - 4) fail(fmt::format("damaged extra field of '{}'", name));
    uint64_t field = extra + 4;
    if (id == kZip64Extra) {
      for (uint64_t* value : {&size, &compressed, &header}) {
        if (*value != kInExtra) continue;
        if (field + 8 > extra + 4 + length) fail(fmt::format("damaged zip64 field of '{}'", name));
        *value = read<uint64_t>(field);
        field += 8;
      }
    }
    extra += 4 + uint64_t{length};
  }
  if ((flags & 1) != 0) fail(fmt::format("'{}' is encrypted", name));
  if (method != 0 || compressed != size) {
    fail(fmt::format("'{}' is compressed; {} stores entries as they are, so save the file again with it", name,
                     writer_));
  }
  slice(header, size);
  total_size_ += size;
  if (total_size_ > bytes_.size()) fail("its entries overlap");
  entries_[name] = {size, header, read<uint32_t>(offset + 16)};
  return next;
}

std::vector<std::string> ZipDirectory::names() const {
  std::vector<std::string> result;
  for (const auto& [name, entry] : entries_) result.push_back(name);
  return result;
}

std::string ZipDirectory::name_ending_in(std::string_view suffix) const {
  std::string found;
  for (const auto& [name, entry] : entries_) {
    if (!name.ends_with(suffix)) continue;
    if (!found.empty()) return "";
    found = name;
  }
  return found;
}

std::string_view ZipDirectory::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) fail(fmt::format("has no entry '{}'", name));
  const Entry& entry = found->second;
  if (read<uint32_t>(entry.header_offset) != kLocalHeader) fail(fmt::format("no header where '{}' should begin", name));
  const uint64_t begin = entry.header_offset + kLocalSize + read<uint16_t>(entry.header_offset + 26) +
                         read<uint16_t>(entry.header_offset + 28);
  const std::string_view contents = slice(begin, entry.size);
  if (crc32_z(0, reinterpret_cast<const Bytef*>(contents.data()), contents.size()) != entry.crc) {
    fail(fmt::format("the checksum of '{}' is wrong: the file is damaged", name));
  }
  return contents;
}

}  // namespace octet
