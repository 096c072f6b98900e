// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/conv2d_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/core/divide.h"
#include "src/cuda/device.h"
#include "tests/kernels/device_bytes.h"
#include "tests/kernels/random_codes.h"

namespace octet::kernels::testing {
namespace {

/// Makes codes around zero of codes around 128, so that extreme codes stay extreme.
void flip(std::vector<uint8_t>& codes) {
  for (uint8_t& code : codes) code ^= 0x80;
}

size_t output_bytes(const ConvCase& c) {
  return static_cast<size_t>(c.images) * c.shape.out_h * c.shape.out_w * c.shape.out_stride *
         (c.params.y.float_output ? sizeof(float) : 1);
}

}  // namespace

void use_cuda_strides(ConvCase& c) {
  c.shape.in_stride = cuda_channel_stride(c.shape.in_c);
  c.shape.out_stride = c.params.y.float_output ? c.shape.out_c : cuda_channel_stride(c.shape.out_c);
  c.shape.residual_stride = cuda_channel_stride(c.shape.out_c);
}

void vary_for_cuda(ConvCase& c, std::mt19937& random) {
  Conv2dParams& p = c.params;
  if (random() & 1) use_cuda_strides(c);
  if (p.y.float_output) c.shape.out_stride = c.shape.out_c;
  fill_random(c, random, {.extreme = random() % 6 == 0});
  if (random() & 1) {
    p.x.is_signed = true;
    p.x.zero_point -= 128;
    flip(c.x);
  }
  if (random() & 1) {
    p.y.is_signed = true;
    p.y.zero_point -= 128, p.y.clamp_min -= 128, p.y.clamp_max -= 128;
  }
  if (p.has_residual && random() & 1) {
    p.residual.is_signed = true;
    p.residual.zero_point -= 128;
    flip(c.residual);
  }
  if (!p.y.float_output && random() % 3 == 0) draw_lookup(c, random);
}

ConvCase random_ungrouped_case(std::mt19937& random, bool uneven_padding) {
  ConvCase c;
  Conv2dShape& g = c.shape;
  c.images = one_of(random, {1, 3, 7});
  g.in_c = one_of(random, {5, 16, 17, 24, 40, 64, 100, 128, 144, 200});
  g.out_c = one_of(random, {1, 8, 17, 24, 40, 64, 100, 128, 200, 270});
  g.kernel_h = one_of(random, {1, 1, 3, 3, 5, 15});
  g.kernel_w = random() % 4 == 0 ? uniform(random, 1, 7) : g.kernel_h;
  g.stride_h = uniform(random, 1, 2);
  g.stride_w = random() % 4 == 0 ? uniform(random, 1, 3) : g.stride_h;
  g.dilation_h = random() % 3 == 0 ? uniform(random, 1, 3) : 1;
  g.dilation_w = random() % 3 == 0 ? uniform(random, 1, 3) : g.dilation_h;
  g.pad_h = uniform(random, 0, g.kernel_h - 1);
  g.pad_w = uniform(random, 0, g.kernel_w - 1);
  const int span_h = g.dilation_h * (g.kernel_h - 1) + 1, span_w = g.dilation_w * (g.kernel_w - 1) + 1;
  g.in_h = std::max(1, span_h - 2 * g.pad_h) + uniform(random, 0, 11);
  g.in_w = std::max(1, span_w - 2 * g.pad_w) + uniform(random, 0, 11);
  uneven_padding ? infer_output(g, random) : infer_output(g);

  Conv2dParams& p = c.params;
  p.x.zero_point = one_of(random, {0, 0, 128, 255, 77});
  p.y.zero_point = one_of(random, {0, 128, 31});
  p.y.clamp_min = random() % 2 ? p.y.zero_point : 0;
  p.y.clamp_max = random() % 2 ? 255 : 240;
  p.has_residual = random() % 2;
  p.residual.zero_point = one_of(random, {0, 128, 90});
  p.y.float_output = random() % 6 == 0;
  vary_for_cuda(c, random);  // codes and signs
  use_cuda_strides(c);
  auto widen = [&](int stride) { return stride + (random() % 4 == 0 ? 16 * uniform(random, 1, 3) : 0); };
  g.in_stride = round_up(widen(g.in_stride), 16);
  g.residual_stride = round_up(widen(g.residual_stride), 16);
  if (!p.y.float_output) g.out_stride = round_up(widen(g.out_stride), 16);
  const ConvCase signs = c;
  fill_random(c, random, {.extreme = random() % 4 == 0});
  c.params = signs.params;
  c.bind();
  return c;
}

ConvCase largest_sums_case(int zero_point, bool float_output, std::mt19937& random) {
  ConvCase c;
  c.shape = {.in_c = 512, .in_h = 4, .in_w = 4, .out_c = 40, .kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1};
  infer_output(c.shape);
  c.params.x.zero_point = zero_point;
  c.params.y.float_output = float_output;
  use_cuda_strides(c);
  fill_random(c, random, {.extreme = true});
  return c;
}

std::vector<uint8_t> run_cuda(const ConvCase& c, const CudaConv2d& conv) {
  return run_family(c, {nullptr, cuda_conv2d_pack, cuda_conv2d_workspace, cuda_conv2d}, conv);
}

std::vector<uint8_t> run_family(const ConvCase& c, const CudaConvFamily& family, const CudaConv2d& conv) {
  const Stream stream;
  const std::vector<uint8_t> packed_bytes = family.pack(conv, c.shape, c.params, c.weights);
  const DeviceBytes packed(packed_bytes, stream), x(c.x, stream), residual(c.residual, stream);
  const DeviceBytes y(std::vector<uint8_t>(output_bytes(c), kCanary), stream, kCanary);
  std::vector<uint8_t> scratch(family.workspace ? family.workspace(conv, c.shape, c.images) : 0, 0xEE);
  std::fill_n(scratch.begin(), std::min(scratch.size(), kCudaWorkspaceZeros), uint8_t{0});
  const DeviceBytes workspace(scratch, stream);
  const std::vector<uint8_t> codes =
      c.lookup ? std::vector<uint8_t>(c.lookup->byte, c.lookup->byte + 256) : std::vector<uint8_t>();
  const DeviceBytes table(codes, stream);
  const CudaConv2dData data{.images = c.images,
                            .packed = packed.data(),
                            .x = x.data(),
                            .residual = c.params.has_residual ? residual.data() : nullptr,
                            .y = y.data(),
                            .workspace = workspace.data(),
                            .lookup = c.lookup ? table.data() : nullptr};
  for (int run = 0; run < 2; ++run) family.launch(conv, c.shape, c.params, data, stream.get());
  scratch = workspace.read(stream);
  scratch.resize(std::min(scratch.size(), kCudaWorkspaceZeros));
  EXPECT_TRUE(std::all_of(scratch.begin(), scratch.end(), [](uint8_t byte) { return byte == 0; }))
      << conv.name << " left its counters unclean; " << c.describe();
  return y.read(stream);
}

void expect_exact(const ConvCase& c, const std::string& variant, const std::vector<uint8_t>& actual,
                  const std::vector<uint8_t>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  const size_t stride = c.shape.out_stride, channels = c.shape.out_c, writable = round_up(c.shape.out_c, 16);
  for (size_t i = 0; i < actual.size(); ++i) {
    const size_t lane = i % stride;
    const bool free = !c.params.y.float_output && lane >= channels && lane < writable;
    ASSERT_TRUE(free || actual[i] == expected[i])
        << variant << ": byte " << i << " of " << actual.size() << " is " << int{actual[i]} << ", not "
        << int{expected[i]} << "; " << c.describe();
  }
}

int expect_every_choice_exact(const ConvCase& c) {
  const std::vector<uint8_t> expected = run_reference(c);
  const std::vector<CudaConv2d> choices = cuda_conv2d_choices(c.shape, c.params, c.weights, c.images, this_gpu());
  for (const CudaConv2d& conv : choices) expect_exact(c, conv.name, run_cuda(c, conv), expected);
  return static_cast<int>(choices.size());
}

}  // namespace octet::kernels::testing
