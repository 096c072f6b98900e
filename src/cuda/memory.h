// Memory of the GPU and page-locked memory of the host, owned. No CUDA types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include "kernels/cuda_stream.h"
#include "src/common/error.h"

namespace octet {

/// The GPU has no room. An Error(promise) whose message has the sizes: "12.30 GB for activations of 512 images do not
/// fit on the GPU: 8.00 of 139.80 GB are free".
class OutOfGpuMemory : public Error {
 public:
  OutOfGpuMemory(const std::string& message, size_t asked, size_t free)
      : Error(ExitCode::promise, message), asked_(asked), free_(free) {}
  size_t asked() const { return asked_; }  ///< bytes that there was no room for
  size_t free() const { return free_; }    ///< bytes, when it was thrown

 private:
  size_t asked_, free_;
};

/// What addresses of device memory are multiples of; more than any access needs.
inline constexpr size_t kDeviceAlignment = 256;

/// On the device, aligned to kDeviceAlignment, not initialized.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// `what` names the use in errors. Throws OutOfGpuMemory.
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

/// On the host, page-locked: copies to and from the GPU are fast and asynchronous.
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

/// Whether CUDA knows this host memory as page-locked (PinnedBuffer, cudaMallocHost, cudaHostRegister).
bool is_page_locked(const void* host);

/// Page-locked host memory for standard containers. Throws Error(promise) when there is none left.
std::pmr::memory_resource* pinned_memory();

/// Asynchronous on the stream; `copy_to_device` needs host memory that stays until the stream got there.
void copy_to_device(void* device, const void* host, size_t bytes, CudaStream stream);
void copy_on_device(void* to, const void* from, size_t bytes, CudaStream stream);
void copy_to_host(void* host, const void* device, size_t bytes, CudaStream stream);
/// Constants on the device: waits, so that `bytes` may go. `what` names them in errors.
DeviceBuffer to_device(const std::vector<uint8_t>& bytes, const std::string& what, CudaStream stream);
void fill_device(void* device, int value, size_t bytes, CudaStream stream);

}  // namespace octet
