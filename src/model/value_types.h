// Tensors as kernels see them.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "kernels/value_type.h"
#include "src/common/error.h"

namespace octet {

inline kernels::ValueType value_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return kernels::ValueType::float32;
    case at::kHalf:
      return kernels::ValueType::float16;
    case at::kBFloat16:
      return kernels::ValueType::bfloat16;
    default:
      throw promise_error(std::string("kernels take float32, float16 and bfloat16, not ") + c10::toString(type));
  }
}
inline kernels::ValueType value_type(const at::Tensor& x) { return value_type(x.scalar_type()); }

inline at::ScalarType scalar_type(kernels::ValueType type) {
  if (type == kernels::ValueType::float32) return at::kFloat;
  return type == kernels::ValueType::float16 ? at::kHalf : at::kBFloat16;
}

/// x itself when its memory has no gaps (channels-last included), else a dense copy: the kernels see flat memory.
inline at::Tensor dense(const at::Tensor& x) {
  return x.is_non_overlapping_and_dense() ? x : x.contiguous(x.suggest_memory_format());
}

}  // namespace octet
