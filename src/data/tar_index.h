// Members of a tar archive (POSIX.1-1988 ustar) read in place, without extracting.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace octet {

struct TarMember {
  std::string name;
  uint64_t offset = 0, size = 0;  ///< of the contents
};

class TarFile {
 public:
  /// Reads all headers. Throws Error(data) for a damaged archive, or one that needs long-name extensions.
  explicit TarFile(const std::string& path);
  ~TarFile();
  TarFile(const TarFile&) = delete;
  TarFile& operator=(const TarFile&) = delete;
  const std::vector<TarMember>& members() const { return members_; }  ///< regular files, as stored
  /// Contents of `size` bytes at `offset`; thread-safe.
  std::string read(uint64_t offset, uint64_t size) const;

 private:
  void read_headers();
  [[noreturn]] void damaged(uint64_t offset, const std::string& what) const;

  std::string path_;
  int descriptor_ = -1;
  uint64_t file_size_ = 0;
  std::vector<TarMember> members_;
};

}  // namespace octet
