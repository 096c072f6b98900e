// SPDX-License-Identifier: Apache-2.0
// Files in folders on disk or inside a .tar, which is read in place.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace octet {

class LeftOut;

/// Returns the first `most` bytes of a file on disk. Throws Error(data).
std::string file_start(const std::string& path, uint64_t most);

struct TarMember {
  std::string name;
  uint64_t offset = 0, size = 0;  ///< of the contents
};

/// A tar archive (POSIX.1-1988 ustar) whose members are read in place, without extracting.
class TarFile {
 public:
  /// Reads all headers. Throws Error(data) for a damaged archive, and for one that needs long-name extensions.
  explicit TarFile(const std::string& path);
  ~TarFile();
  TarFile(const TarFile&) = delete;
  TarFile& operator=(const TarFile&) = delete;
  const std::vector<TarMember>& members() const { return members_; }  ///< regular files, in the archive's order
  /// Returns the `size` bytes at `offset`; thread-safe.
  std::string read(uint64_t offset, uint64_t size) const;

 private:
  void read_headers();
  [[noreturn]] void damaged(uint64_t offset, const std::string& what) const;

  std::string path_;
  int descriptor_ = -1;
  uint64_t file_size_ = 0;
  std::vector<TarMember> members_;
};

/// Returns the archive at `path`. Its headers are read once for as long as someone holds it, for every split of a data
/// set opens it.
std::shared_ptr<const TarFile> open_tar(const std::string& path);

/// A file on disk or in an archive.
struct StoredFile {
  std::string name;                        ///< for messages; on disk its path
  std::shared_ptr<const TarFile> archive;  ///< null: on disk
  uint64_t offset = 0, size = 0;           ///< in the archive

  /// Returns its first `most` bytes. Throws Error(data).
  std::string read(uint64_t most = std::numeric_limits<uint64_t>::max()) const;
};

/// The files of a data set that lie in several folders.
class FileTree {
 public:
  /// root: a folder, which need not exist, or a .tar. Throws Error(data) for a damaged archive and a compressed one.
  explicit FileTree(const std::string& root);

  // Names lie below the root and may have "." and ".." in them. In an archive they may also lie below folders around
  // all of its files, "CamVid/" in one that was made of that folder.

  bool is_file(const std::string& name) const;
  bool is_folder(const std::string& name) const;
  bool in_archive() const { return archive_ != nullptr; }

  /// Returns a file, or what messages call it.
  StoredFile file(const std::string& name) const;
  std::string describe(const std::string& name) const { return file(name).name; }

  /// Returns the images in a folder and in all folders within it, sorted by name. Counts the other files, but hidden
  /// ones.
  std::vector<StoredFile> images(const std::string& folder, LeftOut& left_out) const;

 private:
  std::string in_archive(const std::string& name) const;

  std::string root_;
  std::shared_ptr<const TarFile> archive_;   ///< null: a folder
  std::map<std::string, StoredFile> files_;  ///< of the archive, by name without "./"
  std::set<std::string> folders_;            ///< of the archive
  std::vector<std::string> tops_ = {""};     ///< folders around all files: "", "CamVid/", "CamVid/data/"
};

}  // namespace octet
