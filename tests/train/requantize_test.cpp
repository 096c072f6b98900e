// SPDX-License-Identifier: Apache-2.0
#include "src/train/proof/exact_operators.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace octet {
namespace {

/// Large enough that three threads share the work.
constexpr int64_t kChannels = 24, kSide = 32;

at::Tensor integers(int64_t low, int64_t high, uint64_t seed) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  return nhwc(at::randint(low, high, {3, kChannels, kSide, kSide}, generator, at::kFloat));
}

/// Each thread takes its own rows of the sums and of the residual.
TEST(Requantize, ThreadsShareTheRows) {
  at::Generator generator = at::detail::createCPUGenerator(3);
  const at::Tensor acc = integers(-30000, 30000, 1), residual = integers(-100, 156, 2);
  RequantizeRule epilogue{at::rand({kChannels}, generator).mul_(0.01), at::randn({kChannels}, generator), 0.7f, {}};
  const int threads = at::get_num_threads();
  for (const bool logits : {false, true}) {
    epilogue.rounding = {.zero_point = 100, .lo = 3, .hi = 250, .float_output = logits};
    const kernels::ChannelRule rule{kChannels,
                                    epilogue.multiplier.const_data_ptr<float>(),
                                    epilogue.bias.const_data_ptr<float>(),
                                    residual.const_data_ptr<float>(),
                                    epilogue.residual_multiplier,
                                    epilogue.rounding};
    at::Tensor expected = at::empty_like(acc);
    kernels::requantize_rows(rule, acc.const_data_ptr<float>(), acc.numel() / kChannels,
                             expected.mutable_data_ptr<float>());
    for (const int count : {1, 2, 3}) {
      at::set_num_threads(count);
      EXPECT_TRUE(at::equal(requantize(epilogue, acc, residual), expected)) << count << " threads";
      EXPECT_TRUE(at::equal(requantize(epilogue, acc.to(at::kDouble), residual), expected)) << count << " threads";
    }
  }
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace octet
