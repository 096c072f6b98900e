// SPDX-License-Identifier: Apache-2.0
// Arrays of structs on the GPU that kernels of recorded steps read.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstdint>
#include <vector>

namespace octet {

/// An array of structs in device memory, at an address that never changes, since captured graphs hold it.
template <class T>
class DeviceTable {
 public:
  DeviceTable() = default;
  DeviceTable(size_t size, at::Device device)
      : bytes_(at::empty({static_cast<int64_t>(size * sizeof(T))}, at::TensorOptions(device).dtype(at::kByte))) {}
  bool defined() const { return bytes_.defined(); }
  T* row(size_t index) const { return static_cast<T*>(bytes_.data_ptr()) + index; }
  void write(std::vector<T> rows) { bytes_.copy_(at::from_blob(rows.data(), bytes_.sizes(), at::kByte)); }
  std::vector<T> read() const {
    std::vector<T> rows(bytes_.numel() / sizeof(T));
    at::from_blob(rows.data(), bytes_.sizes(), at::kByte).copy_(bytes_);
    return rows;
  }

 private:
  at::Tensor bytes_;
};

}  // namespace octet
