// SPDX-License-Identifier: Apache-2.0
// The definition held to numbers worked by hand, and what create() refuses.
#include <gtest/gtest.h>

#include "src/base/error.h"
#include "tests/kernels/conv2d_random.h"

namespace octet::kernels::testing {
namespace {

/// 1 channel, 3x3 image 1..9, 2x2 kernel, no padding.
ConvCase small_case() {
  ConvCase c;
  c.shape = {
      .in_c = 1, .in_h = 3, .in_w = 3, .in_stride = 1, .out_c = 1, .out_stride = 1, .kernel_h = 2, .kernel_w = 2};
  infer_output(c.shape);
  c.weight = {1, -2, 3, 4};
  c.multiplier = {0.25f};
  c.bias = {0.25f};
  c.x.assign(9 + kCpuReadSlack, 0);
  for (int i = 0; i < 9; ++i) c.x[i] = static_cast<uint8_t>(i + 1);
  c.bind();
  return c;
}

TEST(Conv2dReference, WorkedNumbers) {
  ConvCase c = small_case();
  // acc: 1 - 4 + 12 + 20 = 29; 2 - 6 + 15 + 24 = 35; 4 - 10 + 21 + 32 = 47; 53. t = acc / 4 + 1/4 = 7.5, 9, 12, 13.5.
  EXPECT_EQ(run_reference(c), (std::vector<uint8_t>{8, 9, 12, 14}));  // 7.5 and 13.5 go to even
  c.params.y.zero_point = 5;
  c.params.y.clamp_max = 18;
  EXPECT_EQ(run_reference(c), (std::vector<uint8_t>{13, 14, 17, 18}));
  c.params.x.zero_point = 10;  // acc - 10 * 6: -31, -25, -13, -7; t = -7.5, -6, -3, -1.5 -> -8, -6, -3, -2, plus 5
  EXPECT_EQ(run_reference(c), (std::vector<uint8_t>{0, 0, 2, 3}));
}

TEST(Conv2dReference, PaddingIsTheZeroPoint) {
  ConvCase c = small_case();
  c.shape.pad_h = c.shape.pad_w = 1;
  infer_output(c.shape);
  c.params.x.zero_point = 1;
  c.params.y.zero_point = 100;
  const std::vector<uint8_t> y = run_reference(c);
  ASSERT_EQ(y.size(), 16u);
  EXPECT_EQ(y[0], 100);   // only x = 1, the zero point itself: t = 0.25
  EXPECT_EQ(y[1], 101);   // x = 1, 2: 0 * 3 + 1 * 4 = 4, t = 1.25
  EXPECT_EQ(y[15], 102);  // x = 9: 8 * 1, t = 2.25
}

TEST(Conv2dReference, SignedCodes) {
  ConvCase c = small_case();
  for (int i = 0; i < 9; ++i) c.x[i] = static_cast<uint8_t>(static_cast<int8_t>(-(i + 1)));
  c.params.x.is_signed = c.params.y.is_signed = true;
  c.params.y.clamp_min = -128;
  c.params.y.clamp_max = 127;
  // acc = -29, -35, -47, -53: t = -7, -8.5, -11.5, -13
  const std::vector<uint8_t> y = run_reference(c);
  EXPECT_EQ(static_cast<int8_t>(y[0]), -7);
  EXPECT_EQ(static_cast<int8_t>(y[1]), -8);
  EXPECT_EQ(static_cast<int8_t>(y[2]), -12);
  EXPECT_EQ(static_cast<int8_t>(y[3]), -13);
}

TEST(CpuConv2d, RefusesWhatItsContractExcludes) {
  auto refused = [](void (*spoil)(ConvCase&)) {
    ConvCase c = small_case();
    spoil(c);
    EXPECT_THROW(CpuConv2d::create(c.shape, c.params, c.weights, CpuIsa::portable), Error);
  };
  refused([](ConvCase& c) { c.params.x.is_signed = true; });
  refused([](ConvCase& c) { c.params.y.is_signed = true; });
  refused([](ConvCase& c) { c.params.y.clamp_min = -1; });
  refused([](ConvCase& c) { c.params.x.zero_point = 256; });
  refused([](ConvCase& c) { c.weights.weight = nullptr; });
  refused([](ConvCase& c) { c.shape.out_w = 1; });
  refused([](ConvCase& c) { c.shape.groups = 2; });
  refused([](ConvCase& c) { c.shape.in_stride = 0; });
  const ConvCase good = small_case();
  EXPECT_NO_THROW(CpuConv2d::create(good.shape, good.params, good.weights, CpuIsa::portable));
}

TEST(CpuConv2d, ChannelStride) {
  EXPECT_EQ(cpu_channel_stride(1), 4);
  EXPECT_EQ(cpu_channel_stride(4), 4);
  EXPECT_EQ(cpu_channel_stride(5), 16);
  EXPECT_EQ(cpu_channel_stride(16), 16);
  EXPECT_EQ(cpu_channel_stride(17), 32);
}

TEST(CpuConv2d, NamesSayPathAndKernel) {
  const ConvCase c = small_case();
  for (CpuIsa isa : available_cpu_isas()) {
    const std::string name = CpuConv2d::create(c.shape, c.params, c.weights, isa)->name();
    if (isa == CpuIsa::amx) isa = vector_isa(isa);  // too few channels for tiles
    EXPECT_NE(name.find(cpu_isa_name(isa)), std::string::npos) << name;
    EXPECT_NE(name.find("conv2x2"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace octet::kernels::testing
