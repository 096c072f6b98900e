// Memory of the GPU and page-locked memory of the host, owned. No CUDA types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cuda_stream.h"

namespace octet {

/// On the device, aligned to 256 bytes, not initialized.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// `what` names the use in errors. Throws Error(promise) when the GPU has no room: "12.3 GB for activations of 512
  /// images do not fit: 8.0 of 139.8 GB are free".
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

/// Asynchronous on the stream; `to_device` needs host memory that stays until the stream got there.
void copy_to_device(void* device, const void* host, size_t bytes, CudaStream stream);
void copy_to_host(void* host, const void* device, size_t bytes, CudaStream stream);
void fill_device(void* device, int value, size_t bytes, CudaStream stream);

}  // namespace octet
