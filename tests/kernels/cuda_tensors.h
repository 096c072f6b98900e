// SPDX-License-Identifier: Apache-2.0
// Arrays on the device and values of every type, for tests of kernels on real values.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/cuda.h"
#include "kernels/core/quantize.h"
#include "src/cuda/memory.h"
#include "src/cuda/stream.h"

namespace octet::test {

/// A copy of an array on the device, `offset` bytes past an aligned address.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values, size_t offset = 0)
      : buffer_(values.size() * sizeof(T) + offset + 16, "a test"), offset_(offset), size_(values.size()) {
    copy_to_device(data(), values.data(), size_ * sizeof(T), nullptr);
  }
  T* data() const { return reinterpret_cast<T*>(buffer_.data() + offset_); }
  std::vector<T> read() const {
    std::vector<T> values(size_);
    copy_to_host(values.data(), data(), size_ * sizeof(T), nullptr);
    Event done;  // a kernel's error is thrown here
    done.record(nullptr);
    done.wait();
    return values;
  }

 private:
  DeviceBuffer buffer_;
  size_t offset_, size_;
};

/// Bytes of a type's values: rounded to it from float, and read back as float.
std::vector<uint8_t> narrowed(const std::vector<float>& values, kernels::ValueType type);
std::vector<float> widened(const std::vector<uint8_t>& bytes, kernels::ValueType type);
size_t bytes_of(kernels::ValueType type);

inline constexpr kernels::ValueType kTypes[] = {kernels::ValueType::float32, kernels::ValueType::float16,
                                                kernels::ValueType::bfloat16};

/// Values that round and clip: half steps of the scale, both bounds and their neighbours, zeros of both signs, huge and
/// tiny values, infinities and NaN, then noise; at least `count`.
std::vector<float> difficult_values(const QParams& q, size_t count);

}  // namespace octet::test
