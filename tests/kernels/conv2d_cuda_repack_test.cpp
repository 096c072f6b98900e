// SPDX-License-Identifier: Apache-2.0
// How packed data are laid out is found from numbered weights, and gives the bytes of packing for every kernel. Needs
// no GPU.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "kernels/conv/cuda/rounding.h"
#include "kernels/conv/cuda_repack.h"
#include "tests/kernels/conv2d_cuda.h"

namespace octet::kernels::testing {
namespace {

/// Returns packed data made of `found` and the case's weights alone.
std::vector<uint8_t> packed_by(const CudaRepacking& found, const ConvCase& c) {
  std::vector<uint8_t> packed = found.fixed;
  for (size_t byte = 0; byte < packed.size(); ++byte)
    if (found.code[byte] >= 0) packed[byte] = static_cast<uint8_t>(c.weight[found.code[byte]]);
  const int taps = c.shape.kernel_h * c.shape.kernel_w, inputs = c.shape.in_c / c.shape.groups;
  for (const RepackedWord& word : found.words) {
    uint32_t bits;
    if (word.kind == RepackedWord::start) {
      int32_t sum = 0;
      for (int tap = 0; tap < taps; ++tap)
        for (int i = 0; (word.taps >> tap & 1) != 0 && i < inputs; ++i)
          sum += c.weight[(static_cast<size_t>(word.channel) * taps + tap) * inputs + i];
      bits = static_cast<uint32_t>(word.base - c.params.x.zero_point * sum);
    } else {
      const bool is_bias = word.kind == RepackedWord::bias;
      const float value = (is_bias ? c.bias : c.multiplier)[word.channel];
      float scaled = value * word.factor;
      if (is_bias && word.factor != 1) scaled = scaled_bias(value);
      std::memcpy(&bits, &scaled, sizeof(bits));
    }
    std::memcpy(&packed[static_cast<size_t>(word.word) * 4], &bits, sizeof(bits));
  }
  return packed;
}

/// Returns the names of the kernels whose data were found.
std::set<std::string> expect_found(const ConvCase& c) {
  std::set<std::string> kernels;
  for (const CudaConv2d& conv : cuda_conv2d_choices(c.shape, c.params, c.weights, c.images, kH200)) {
    kernels.insert(conv.name);
    const CudaRepacking found = cuda_repacking(conv, c.shape, c.params);
    EXPECT_TRUE(packed_by(found, c) == cuda_conv2d_pack(conv, c.shape, c.params, c.weights))
        << conv.name << " " << c.describe();
  }
  return kernels;
}

TEST(Conv2dCudaRepack, PackedDataOfEveryKernelAreFound) {
  std::mt19937 random(71);
  std::set<std::string> kernels;
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    ConvCase c = i % 3 == 0 ? random_case(random) : random_ungrouped_case(random, /*uneven_padding=*/i % 2 == 0);
    if (i % 3 == 1) {  // first layers and depthwise ones
      const bool depthwise = i % 2 == 0;
      Conv2dShape g;
      g.in_c = depthwise ? 5 + random() % 60 : 1 + random() % 4;
      g.out_c = depthwise ? g.in_c : 5 + random() % 70;
      g.groups = depthwise ? g.in_c : 1;
      g.in_h = 9 + random() % 9, g.in_w = 9 + random() % 9;
      g.kernel_h = g.kernel_w = depthwise ? (random() & 1 ? 3 : 5) : 3 + random() % 5;
      g.stride_h = g.stride_w = 1 + random() % 2;
      g.pad_h = g.pad_w = random() % 3;
      c.shape = g;
      infer_output(c.shape);
      c.params = {.x = {.zero_point = static_cast<int32_t>(random() % 256)}, .y = {.clamp_max = 255}};
    }
    if (c.shape.kernel_h * c.shape.kernel_w > 64) continue;
    use_cuda_strides(c);
    fill_random(c, random);
    c.bias[0] = random() & 1 ? 1e-42f : -1e-42f;  // vanishes where constants are scaled, but for its sign
    kernels.merge(expect_found(c));
  }
  for (const std::string family :
       {"wgmma_", "mma_1", "mma_image_", "dp4a_depthwise_3x3", "dp4a_depthwise_5x5", "dp4a_8", "direct"}) {
    const auto first = kernels.lower_bound(family);
    EXPECT_TRUE(first != kernels.end() && first->starts_with(family)) << family;
  }
}

}  // namespace
}  // namespace octet::kernels::testing
