// SPDX-License-Identifier: Apache-2.0
// Memory with a forbidden page at one end: a kernel that touches a byte too many dies there, in every build. Sanitizers
// do not see masked vector loads and stores (compilers leave those intrinsics uninstrumented); the processor does.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octet::kernels::testing {

/// Which side of the bytes is forbidden: one page, so a stray access of up to that distance is caught.
enum class Guard { before, behind };

/// `bytes` bytes set to `fill`, which touch the forbidden page.
class GuardedBytes {
 public:
  GuardedBytes(size_t bytes, uint8_t fill, Guard guard);
  ~GuardedBytes();
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  uint8_t* data() const { return data_; }

 private:
  void* mapping_ = nullptr;
  size_t mapped_bytes_ = 0;
  uint8_t* data_ = nullptr;
};

}  // namespace octet::kernels::testing
