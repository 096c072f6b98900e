// Named tensors as they lie in files: bytes with a type and a shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace octet {

enum class DType { f32, f64, f16, bf16, i64, i32, i16, i8, u8, boolean };

size_t dtype_size(DType dtype);            ///< bytes of one element
std::string_view dtype_name(DType dtype);  ///< "F32", as in safetensors

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

/// Elements as float32: f32 as they are, f16 and bf16 exactly, f64 rounded to nearest even. Throws Error(data) for
/// integer types.
std::vector<float> to_float(const TensorData& tensor);

/// "[3, 0, 1, 1]": where element `index` of a row-major tensor lies.
std::string place_in(const std::vector<int64_t>& shape, size_t index);

/// "holds nan at [3, 0, 1, 1], the first of 2 such values"; "" where all are finite.
std::string not_finite(const std::vector<float>& values, const std::vector<int64_t>& shape);

/// Throws Error(data), naming `file`, the tensor and the first such value, for a weight that is NaN or infinite and for
/// a variance of BatchNorm (running_var) below zero.
void require_usable_weights(const std::string& file, const std::string& name, const TensorData& tensor);

/// An f32 tensor from `shape`'s number of floats.
TensorData float_tensor(std::vector<int64_t> shape, const float* values);

}  // namespace octet
