// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/guarded_bytes.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace octet::kernels::testing {

GuardedBytes::GuardedBytes(size_t bytes, uint8_t fill, Guard guard) {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t usable = (bytes + page - 1) / page * page;
  mapped_bytes_ = usable + page;
  mapping_ = ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  uint8_t* first = static_cast<uint8_t*>(mapping_);
  data_ = guard == Guard::before ? first + page : first + usable - bytes;
  if (::mprotect(guard == Guard::before ? first : first + usable, page, PROT_NONE) != 0) {
    const int error = errno;
    ::munmap(mapping_, mapped_bytes_);
    throw std::system_error(error, std::generic_category(), "mprotect");
  }
  std::memset(data_, fill, bytes);
}

GuardedBytes::~GuardedBytes() { ::munmap(mapping_, mapped_bytes_); }

}  // namespace octet::kernels::testing
