// SPDX-License-Identifier: Apache-2.0
// Named tensors, and the safetensors files that hold them: 8 bytes of header length (little endian), a JSON header, the
// tensors (https://github.com/huggingface/safetensors). The reader trusts nothing: every offset, size, dtype and shape
// is checked against the file, and nothing larger than the file is ever allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octet {

enum class DType { f32, f64, f16, bf16, i64, i32, i16, i8, u8, boolean };

size_t dtype_size(DType dtype);                               ///< bytes of one element
std::string_view dtype_name(DType dtype);                     ///< "F32", as in safetensors
std::optional<DType> dtype_from_name(std::string_view name);  ///< none for an unknown name

struct TensorData {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;  ///< row-major, little endian
  bool operator==(const TensorData&) const = default;
};

struct TensorFile {
  std::map<std::string, TensorData> tensors;
  std::map<std::string, std::string> metadata;
};

/// Returns the elements as float32: f16 and bf16 exactly, f64 rounded to nearest even. Throws Error(data) for integers.
std::vector<float> to_float(const TensorData& tensor);

/// Returns the indices of element `index` of a row-major tensor: "[3, 0, 1, 1]".
std::string place_in(const std::vector<int64_t>& shape, size_t index);

/// Returns "holds nan at [3, 0, 1, 1], the first of 2 such values", or "" if all values are finite.
std::string not_finite(const std::vector<float>& values, const std::vector<int64_t>& shape);

/// Throws Error(data) if a weight is NaN or infinite, or a variance of BatchNorm (running_var) is negative. The message
/// names `file`, the tensor and the first such value.
void require_usable_weights(const std::string& file, const std::string& name, const TensorData& tensor);

/// Returns an f32 tensor of this shape with a copy of the values.
TensorData float_tensor(std::vector<int64_t> shape, const float* values);

/// Reads a file. Throws Error(data) with the path and what is wrong (truncated, overlapping, unknown dtype, ...).
TensorFile read_safetensors(const std::string& path);

/// Reads a file that is in memory; `name` stands for the path in messages.
TensorFile parse_safetensors(const std::byte* data, size_t size, const std::string& name);

/// Returns the bytes of a file. Header keys are sorted; data are ordered by element size (largest first), then name,
/// without gaps from a multiple of 64 bytes on: equal contents give equal files, and each tensor is aligned to its
/// element size. Throws Error(data) if a tensor's bytes do not fit its shape or a name is not UTF-8.
std::string serialize_safetensors(const TensorFile& file);

/// Writes serialize_safetensors() with write_file_atomically() (src/base/files.h).
void write_safetensors(const std::string& path, const TensorFile& file);

}  // namespace octet
