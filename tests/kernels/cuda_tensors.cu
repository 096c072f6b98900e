// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tests/kernels/cuda_tensors.h"

namespace octet::test {

using kernels::ValueType;

size_t bytes_of(ValueType type) { return type == ValueType::float32 ? 4 : 2; }

std::vector<uint8_t> narrowed(const std::vector<float>& values, ValueType type) {
  std::vector<uint8_t> bytes(values.size() * bytes_of(type));
  for (size_t i = 0; i < values.size(); ++i) {
    const __half half = __float2half_rn(values[i]);
    const __nv_bfloat16 brain = __float2bfloat16_rn(values[i]);
    if (type == ValueType::float32) std::memcpy(&bytes[4 * i], &values[i], 4);
    if (type == ValueType::float16) std::memcpy(&bytes[2 * i], &half, 2);
    if (type == ValueType::bfloat16) std::memcpy(&bytes[2 * i], &brain, 2);
  }
  return bytes;
}

std::vector<float> widened(const std::vector<uint8_t>& bytes, ValueType type) {
  std::vector<float> values(bytes.size() / bytes_of(type));
  for (size_t i = 0; i < values.size(); ++i) {
    __half half;
    __nv_bfloat16 brain;
    if (type == ValueType::float32) std::memcpy(&values[i], &bytes[4 * i], 4);
    if (type == ValueType::float16) {
      std::memcpy(static_cast<void*>(&half), &bytes[2 * i], 2);
      values[i] = __half2float(half);
    }
    if (type == ValueType::bfloat16) {
      std::memcpy(static_cast<void*>(&brain), &bytes[2 * i], 2);
      values[i] = __bfloat162float(brain);
    }
  }
  return values;
}

std::vector<float> difficult_values(const QParams& q, size_t count) {
  std::mt19937 engine(17);
  std::normal_distribution<float> normal(0, 80 * q.scale);
  std::vector<float> values;
  for (int code = q.quant_min - 3; code <= q.quant_max + 3; ++code) {
    values.push_back(q.scale * static_cast<float>(code - q.zero_point));
    values.push_back(q.scale * (static_cast<float>(code - q.zero_point) + 0.5f));
    values.push_back(std::nextafter(values.back(), -1e30f));
  }
  values.insert(values.end(),
                {0.0f, -0.0f, 6.0f, 5.9999995f, 1e-42f, -1e-20f, 1e38f, -1e38f, INFINITY, -INFINITY, NAN});
  while (values.size() < count) values.push_back(normal(engine));
  return values;
}

}  // namespace octet::test
