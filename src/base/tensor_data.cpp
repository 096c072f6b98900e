// SPDX-License-Identifier: Apache-2.0
#include "src/base/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "src/base/error.h"

namespace octet {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor bytes are read and written as they lie in memory");

struct DTypeEntry {
  DType dtype;
  std::string_view name;
  size_t size;
};

constexpr std::array<DTypeEntry, 10> kDTypes = {{
    {DType::f32, "F32", 4},
    {DType::f64, "F64", 8},
    {DType::f16, "F16", 2},
    {DType::bf16, "BF16", 2},
    {DType::i64, "I64", 8},
    {DType::i32, "I32", 4},
    {DType::i16, "I16", 2},
    {DType::i8, "I8", 1},
    {DType::u8, "U8", 1},
    {DType::boolean, "BOOL", 1},
}};

const DTypeEntry& entry(DType dtype) {
  for (const DTypeEntry& candidate : kDTypes) {
    if (candidate.dtype == dtype) return candidate;
  }
  throw data_error(fmt::format("tensor type number {} does not exist", static_cast<int>(dtype)));
}

/// Converts IEEE 754 binary16, whose values are all exact in float32.
float half_to_float(uint16_t half) {
  const int exponent = (half >> 10) & 0x1f, mantissa = half & 0x3ff;
  float magnitude = 0;
  if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  } else if (exponent == 0x1f) {
    magnitude = mantissa == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  } else {
    magnitude = std::ldexp(static_cast<float>(mantissa + 0x400), exponent - 25);
  }
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

/// Converts bfloat16, the upper half of a float32.
float bfloat_to_float(uint16_t bfloat) { return std::bit_cast<float>(static_cast<uint32_t>(bfloat) << 16); }

template <typename T, typename Convert>
std::vector<float> convert_all(const std::vector<std::byte>& bytes, Convert convert) {
  std::vector<float> values(bytes.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T element;
    std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = convert(element);
  }
  return values;
}

}  // namespace

size_t dtype_size(DType dtype) { return entry(dtype).size; }

std::string_view dtype_name(DType dtype) { return entry(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeEntry& candidate : kDTypes) {
    if (candidate.name == name) return candidate.dtype;
  }
  return std::nullopt;
}

std::vector<float> to_float(const TensorData& tensor) {
  switch (tensor.dtype) {
    case DType::f32:
      return convert_all<float>(tensor.bytes, [](float x) { return x; });
    case DType::f64:
      return convert_all<double>(tensor.bytes, [](double x) { return static_cast<float>(x); });
    case DType::f16:
      return convert_all<uint16_t>(tensor.bytes, half_to_float);
    case DType::bf16:
      return convert_all<uint16_t>(tensor.bytes, bfloat_to_float);
    default:
      throw data_error(fmt::format("a tensor of type {} where floats are needed", dtype_name(tensor.dtype)));
  }
}

std::string place_in(const std::vector<int64_t>& shape, size_t index) {
  std::vector<size_t> place(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    place[d] = index % static_cast<size_t>(shape[d]);
    index /= static_cast<size_t>(shape[d]);
  }
  return fmt::format("[{}]", fmt::join(place, ", "));
}

std::string not_finite(const std::vector<float>& values, const std::vector<int64_t>& shape) {
  const auto is_bad = [](float value) { return !std::isfinite(value); };
  const auto first = std::find_if(values.begin(), values.end(), is_bad);
  if (first == values.end()) return "";
  const auto bad = std::count_if(first, values.end(), is_bad);
  return fmt::format("holds {} at {}{}", *first, place_in(shape, static_cast<size_t>(first - values.begin())),
                     bad == 1 ? "" : fmt::format(", the first of {} such values", bad));
}

void require_usable_weights(const std::string& file, const std::string& name, const TensorData& tensor) {
  const std::vector<float> values = to_float(tensor);
  std::string what = not_finite(values, tensor.shape);
  if (what.empty() && name.ends_with("running_var")) {
    const auto first = std::find_if(values.begin(), values.end(), [](float value) { return value < 0; });
    if (first != values.end())
      what = fmt::format("holds {} at {}, and a variance is not negative", *first,
                         place_in(tensor.shape, static_cast<size_t>(first - values.begin())));
  }
  if (what.empty()) return;
  throw data_error(fmt::format(
      "{}: tensor '{}' {}; the training that wrote it diverged, or the file is damaged: take one from before", file,
      name, what));
}

TensorData float_tensor(std::vector<int64_t> shape, const float* values) {
  int64_t elements = 1;
  for (const int64_t dimension : shape) elements *= dimension;
  TensorData tensor{DType::f32, std::move(shape),
                    std::vector<std::byte>(static_cast<size_t>(elements) * sizeof(float))};
  if (elements > 0) std::memcpy(tensor.bytes.data(), values, tensor.bytes.size());
  return tensor;
}

}  // namespace octet
