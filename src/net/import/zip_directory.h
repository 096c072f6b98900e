// SPDX-License-Identifier: Apache-2.0
// Zip files that are read in memory, as torch.save and np.savez write them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace octet {

/// The entries of a zip or zip64 file (PKWARE APPNOTE 6.3.9) by name. They must be stored, not compressed, as
/// torch.save and np.savez write them; `writer` names the one that the user should save with. Throws Error(data) for
/// truncated, compressed or encrypted entries and offsets outside the file.
class ZipDirectory {
 public:
  ZipDirectory(std::string_view bytes, std::string where, std::string writer = "torch.save");

  std::vector<std::string> names() const;

  /// Returns the name that ends in `suffix`, "" if there is none or more than one.
  std::string name_ending_in(std::string_view suffix) const;
  bool has(const std::string& name) const { return entries_.contains(name); }
  /// Returns the contents of an entry, a part of `bytes`. Throws if it is missing or its CRC-32 differs.
  std::string_view entry(const std::string& name) const;

 private:
  struct Entry {
    uint64_t size, header_offset;
    uint32_t crc;
  };
  struct Tail {
    uint64_t entries, offset;
  };

  [[noreturn]] void fail(const std::string& what) const;
  template <typename T>
  T read(uint64_t offset) const;
  std::string_view slice(uint64_t offset, uint64_t size) const;
  Tail find_tail() const;
  uint64_t read_entry(uint64_t offset);

  std::string_view bytes_;
  std::string where_, writer_;
  std::map<std::string, Entry> entries_;
  uint64_t total_size_ = 0;
};

}  // namespace octet
