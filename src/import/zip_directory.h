// The table of contents of a zip file whose entries are stored, not compressed: what torch.save writes since 1.6.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace octet {

/// Names to contents; the views point into `bytes`. Reads zip and zip64 (PKWARE APPNOTE 6.3.9) and checks CRC-32s when
/// `entry` asks for one. Throws Error(data): truncated, compressed or encrypted entries, offsets outside the file.
class ZipDirectory {
 public:
  ZipDirectory(std::string_view bytes, std::string where);

  /// The name that ends in `suffix`, "" if there is none or more than one.
  std::string name_ending_in(std::string_view suffix) const;
  bool has(const std::string& name) const { return entries_.contains(name); }
  std::string_view entry(const std::string& name) const;  ///< throws if it is missing or its CRC-32 differs

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
  std::string where_;
  std::map<std::string, Entry> entries_;
  uint64_t total_size_ = 0;
};

}  // namespace octet
