// A folder that one process at a time works in.
#pragma once

#include <string>

namespace octet {

/// Holds the folder until destroyed or the process ends, however it ends; leaves no file (flock(2) on the folder).
class FolderLock {
 public:
  /// Throws Error(usage) when somebody else holds it. A file system without locks gives none, and that is no error.
  explicit FolderLock(const std::string& folder);

  enum class Taken { no, yes, unknown };
  /// Whether somebody holds it; unknown where the folder cannot be opened or its file system has no locks.
  static Taken taken(const std::string& folder);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

 private:
  int descriptor_;
};

}  // namespace octet
