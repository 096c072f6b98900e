// SPDX-License-Identifier: Apache-2.0
// The rounding rule gives the same bits on the GPU as on the CPU: the ground under "every engine, every byte".
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "tests/cuda/gpu.h"
#include "tests/kernels/quantize_cuda.h"

namespace octet {
namespace {

/// Ties, ordinary values, huge and tiny ones; accumulators over the whole int32 range.
RuleInputs random_inputs(int count, uint64_t seed, const QParams& qparams) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> unit(-1.0f, 1.0f), exponent(-30.0f, 30.0f);
  std::uniform_int_distribution<int32_t> full(INT32_MIN, INT32_MAX), small(-2000, 2000);
  RuleInputs in;
  in.qparams = qparams;
  for (int i = 0; i < count; ++i) {
    switch (i % 4) {
      case 0:
        in.x.push_back(unit(random) * 300 * qparams.scale);
        break;
      case 1:
        in.x.push_back((small(random) + 0.5f) * qparams.scale);
        break;  // ties
      case 2:
        in.x.push_back(std::exp2(exponent(random)) * unit(random));
        break;
      default:
        in.x.push_back(unit(random) * 1e30f);
        break;
    }
    in.acc.push_back(i % 2 ? full(random) : small(random));
    in.multiplier.push_back(i % 3 ? std::exp2(exponent(random) / 3) * unit(random) : 0.5f);
    in.bias.push_back(i % 5 ? unit(random) * 100 : 0.5f);
  }
  return in;
}

template <typename T>
long differing(const std::vector<T>& a, const std::vector<T>& b) {
  long count = a.size() != b.size();
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) count += std::memcmp(&a[i], &b[i], sizeof(T)) != 0;
  return count;
}

TEST(QuantizeCuda, GpuGivesTheHostsBits) {
  OCTET_NEEDS_GPU();
  const QParams schemes[] = {{0.0371f, 0, -128, 127}, {0.0123f, 0, 0, 255}, {1.7e-3f, 113, 0, 255}, {0.25f, 3, 0, 15}};
  for (const QParams& qparams : schemes) {
    const RuleInputs in = random_inputs(1 << 20, 7, qparams);
    const RuleOutputs host = rule_on_host(in), gpu = rule_on_gpu(in);
    EXPECT_EQ(differing(host.quantized, gpu.quantized), 0) << "scale " << qparams.scale;
    EXPECT_EQ(differing(host.requantized, gpu.requantized), 0) << "scale " << qparams.scale;
    EXPECT_EQ(differing(host.rescaled, gpu.rescaled), 0) << "scale " << qparams.scale;
    EXPECT_EQ(differing(host.dequantized, gpu.dequantized), 0) << "scale " << qparams.scale;
  }
}

}  // namespace
}  // namespace octet
