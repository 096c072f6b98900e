// SPDX-License-Identifier: Apache-2.0
// Owned memory of the GPU, owned page-locked memory of the host, and copies between them. No CUDA types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include "kernels/core/cuda.h"
#include "src/base/error.h"

namespace octet {

/// Thrown when the GPU has too little free memory: an Error(promise) such as "12.30 GB for activations of 512 images do
/// not fit on the GPU: 8.00 of 139.80 GB are free".
class OutOfGpuMemory : public Error {
 public:
  OutOfGpuMemory(const std::string& message, size_t asked, size_t free)
      : Error(ExitCode::promise, message), asked_(asked), free_(free) {}
  size_t asked() const { return asked_; }  ///< bytes that were asked for
  size_t free() const { return free_; }    ///< bytes that were free

 private:
  size_t asked_, free_;
};

/// Addresses of device memory are multiples of this; no access needs more.
inline constexpr size_t kDeviceAlignment = 256;

/// Memory of the current GPU, aligned to kDeviceAlignment, not initialized.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// Allocates; errors name the use `what`. Throws OutOfGpuMemory.
  DeviceBuffer(size_t bytes, const std::string& what);
  uint8_t* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(uint8_t* data) const;
  };
  std::unique_ptr<uint8_t, Free> data_;
  size_t bytes_ = 0;
};

/// Page-locked memory of the host, for which copies to and from the GPU are fast and asynchronous.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(size_t bytes);
  uint8_t* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(uint8_t* data) const;
  };
  std::unique_ptr<uint8_t, Free> data_;
  size_t bytes_ = 0;
};

/// Returns whether CUDA knows this host memory as page-locked (PinnedBuffer, pinned_memory(), cudaHostRegister).
bool is_page_locked(const void* host);

/// Returns a resource of page-locked host memory for standard containers. It throws Error(promise) when there is none
/// left.
std::pmr::memory_resource* pinned_memory();

/// Enqueue a copy on the stream. Host memory must stay as it is until the stream has reached the copy.
void copy_to_device(void* device, const void* host, size_t bytes, CudaStream stream);
void copy_on_device(void* to, const void* from, size_t bytes, CudaStream stream);
void copy_to_host(void* host, const void* device, size_t bytes, CudaStream stream);

/// Returns a copy of `bytes` on the device, after waiting for it. Errors name it `what`.
DeviceBuffer to_device(const std::vector<uint8_t>& bytes, const std::string& what, CudaStream stream);

/// Enqueues setting `bytes` bytes to `value`.
void fill_device(void* device, int value, size_t bytes, CudaStream stream);

}  // namespace octet
