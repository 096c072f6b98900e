// SPDX-License-Identifier: Apache-2.0
// How many codes autocast's types change: the figures that trainers/run/advice.h and recipes/README.md name.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/core/quantize.h"

namespace octet {
namespace {

constexpr int kScaleCount = 40, kValues = 20000;

at::Tensor codes(const at::Tensor& x, const QParams& q) {
  return (x / q.scale).round().clamp(q.quant_min, q.quant_max);
}

double share(const at::Tensor& a, const at::Tensor& b) { return a.ne(b).to(at::kDouble).mean().item<double>(); }

/// Smallest and largest share of an edge's values with another code, over scales that are no powers of two.
struct Changed {
  double least = 1, most = 0;
  void take(double share) {
    least = std::min(least, share);
    most = std::max(most, share);
  }
};

struct Shares {
  Changed stored;  ///< the code's value, rounded to the type, lies nearest to another code's
  Changed before;  ///< the value was rounded to the type before it was quantized, as what a convolution gives is
};

Shares shares(at::ScalarType type, int largest_code, bool uniform) {
  at::manual_seed(3);
  Shares result;
  for (int i = 0; i < kScaleCount; ++i) {
    const double top = std::exp2(7.0 * at::rand({}).item<double>() - 3);
    const QParams q{static_cast<float>(top / largest_code), 0, 0, largest_code};
    const at::Tensor x = uniform ? at::rand({kValues}) * top : (at::randn({kValues}) * (top / 4)).abs().clamp_max(top);
    const auto rounded = [&](const at::Tensor& t) { return t.to(type).to(at::kFloat); };
    const at::Tensor exact = codes(x, q);
    result.stored.take(share(codes(rounded(exact * q.scale), q), exact));
    result.before.take(share(codes(rounded(x), q), exact));
  }
  return result;
}

TEST(LowPrecision, ShareOfCodesThatItChanges) {
  for (const int largest_code : {127, 255}) {
    for (const bool uniform : {false, true}) {
      SCOPED_TRACE(std::to_string(largest_code) + (uniform ? " uniform" : " half-normal"));
      const Shares bf16 = shares(at::kBFloat16, largest_code, uniform), fp16 = shares(at::kHalf, largest_code, uniform);
      const Shares fp32 = shares(at::kFloat, largest_code, uniform);
      EXPECT_EQ(fp32.before.most, 0);
      EXPECT_EQ(fp16.stored.most, 0) << "255 steps fit into 11 bits";
      EXPECT_LT(bf16.stored.most, largest_code > 128 ? 0.1 : 1e-9) << "128 steps fit into 8 bits";
      // Rounding before comes on top, and a grid that the type holds exactly would not help against it.
      EXPECT_GT(bf16.before.least, 0.025);
      EXPECT_LT(bf16.before.most, 0.20);
      EXPECT_GT(fp16.before.least, 0.0025);
      EXPECT_LT(fp16.before.most, 0.03);
    }
  }
}

}  // namespace
}  // namespace octet
