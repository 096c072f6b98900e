#include "src/common/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "src/common/error.h"

namespace octet {

FolderLock::FolderLock(const std::string& folder)
    : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ < 0 || ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(descriptor_);
  throw usage_error(fmt::format("{}: another octet is at work in this folder; wait for it, or stop it", folder));
}

FolderLock::Taken FolderLock::taken(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return Taken::unknown;
  const int failed = ::flock(descriptor, LOCK_SH | LOCK_NB) == 0 ? 0 : errno;
  ::close(descriptor);
  return failed == 0 ? Taken::no : failed == EWOULDBLOCK ? Taken::yes : Taken::unknown;
}

FolderLock::FolderLock(FolderLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace octet
