// SPDX-License-Identifier: Apache-2.0
// Runs the rounding rule of kernels/core/quantize.h on the GPU, for quantize_cuda_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/quantize.h"

namespace octet {

struct RuleInputs {
  std::vector<float> x;      ///< reals, for quantize
  std::vector<int32_t> acc;  ///< accumulators, as many
  std::vector<float> multiplier, bias;
  QParams qparams;
};

struct RuleOutputs {
  std::vector<int32_t> quantized, requantized;
  std::vector<float> rescaled, dequantized;
};

RuleOutputs rule_on_host(const RuleInputs& in);
RuleOutputs rule_on_gpu(const RuleInputs& in);  ///< throws std::runtime_error on a CUDA error

}  // namespace octet
