// SPDX-License-Identifier: Apache-2.0
// How packed data are laid out is found from numbered weights, and gives the bytes of packing for every kernel, on the
// host without a GPU and on the GPU from float weights.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "kernels/conv/cuda/rounding.h"
#include "kernels/conv/cuda_repack.h"
#include "src/quant/node_constants.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/conv2d_cuda.h"
#include "tests/kernels/cuda_tensors.h"

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

using octet::test::DeviceArray;

/// Parameters of a layer in training, in host memory; channels-last.
struct Trained {
  std::vector<float> weight, scale, bias, gamma, beta, mean, variance;

  Trained(const ConvCase& c, std::mt19937& random) : weight(c.weight.size()) {
    std::normal_distribution<float> normal;
    for (float& w : weight) w = normal(random);
    for (auto* values : {&scale, &bias, &gamma, &beta, &mean, &variance}) {
      values->resize(c.shape.out_c);
      for (float& value : *values) value = normal(random);
    }
    for (float& s : scale) s = 0.01f + 0.01f * std::fabs(s);
    for (float& v : variance) v = std::fabs(v);
    gamma[0] = 0;
  }
};

/// Sets the case's weights and constants to what the host makes of the layer.
void convert(ConvCase& c, const Trained& layer, const WeightCodes& codes, bool batch_norm, float x_scale,
             float y_scale) {
  const size_t per_channel = c.weight.size() / c.shape.out_c;
  for (size_t i = 0; i < c.weight.size(); ++i)
    c.weight[i] = static_cast<int8_t>(quantize(layer.weight[i], codes.qparams(layer.scale[i / per_channel])));
  Node node{.name = "n", .op = Op::conv2d};
  node.out_channels = c.shape.out_c;
  node.bias = true;
  FloatParams params{{"n.bias", layer.bias}};
  if (batch_norm) {
    node.batch_norm = "b";
    params.insert({{"b.weight", layer.gamma},
                   {"b.bias", layer.beta},
                   {"b.running_mean", layer.mean},
                   {"b.running_var", layer.variance}});
  }
  const Folded folded = fold(node, params, x_scale, layer.scale, y_scale);
  c.multiplier = folded.multiplier, c.bias = folded.bias;
  c.bind();
}

TEST(Conv2dCudaRepack, TheGpuPacksTheBytesOfTheHost) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(72);
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    ConvCase c = random_ungrouped_case(random, /*uneven_padding=*/i % 2 == 0);
    if (i % 3 == 0) c = random_case(random);
    if (c.shape.kernel_h * c.shape.kernel_w > 64) continue;
    use_cuda_strides(c);
    fill_random(c, random);
    const Trained trained(c, random);
    const WeightCodes codes = i % 4 == 0 ? WeightCodes{-7, 7} : WeightCodes{};
    const bool batch_norm = i % 2 == 0;
    const float x_scale = 0.02f, y_scale = c.params.y.float_output ? 1.0f : 0.05f;
    convert(c, trained, codes, batch_norm, x_scale, y_scale);
    const DeviceArray<float> weight(trained.weight), scale(trained.scale), bias(trained.bias), gamma(trained.gamma),
        beta(trained.beta), mean(trained.mean), variance(trained.variance);
    const int taps = c.shape.kernel_h * c.shape.kernel_w, channels = c.shape.out_c;
    for (const CudaConv2d& conv : cuda_conv2d_choices(c.shape, c.params, c.weights, c.images, this_gpu())) {
      const CudaRepacking found = cuda_repacking(conv, c.shape, c.params);
      const DeviceArray<int32_t> code(found.code);
      const DeviceArray<RepackedWord> words(found.words);
      const DeviceArray<int8_t> of_weights(std::vector<int8_t>(c.weight.size()));
      const DeviceArray<int32_t> sums(std::vector<int32_t>(static_cast<size_t>(channels) * taps));
      const DeviceArray<float> constants(std::vector<float>(2 * static_cast<size_t>(channels)));
      const DeviceArray<uint8_t> packed(found.fixed);
      RepackedLayer layer{.layer = {.weight = weight.data(),
                                    .scale = scale.data(),
                                    .bias = bias.data(),
                                    .epsilon = kBatchNormEpsilon,
                                    .codes = codes,
                                    .channels = channels,
                                    .per_channel = static_cast<int32_t>(c.weight.size()) / channels,
                                    .places = taps,
                                    .channels_last = true},
                          .x_scale = x_scale,
                          .y_scale = y_scale,
                          .x_zero_point = c.params.x.zero_point,
                          .taps = taps,
                          .code = code.data(),
                          .words = words.data(),
                          .codes = of_weights.data(),
                          .tap_sums = sums.data(),
                          .constants = constants.data(),
                          .packed = packed.data(),
                          .packed_words = static_cast<int32_t>(found.fixed.size() / 4),
                          .word_count = static_cast<int32_t>(found.words.size())};
      if (batch_norm) {
        layer.layer.gamma = gamma.data(), layer.layer.beta = beta.data();
        layer.layer.mean = mean.data(), layer.layer.variance = variance.data();
      }
      const auto by_channel = repack_channel_blocks({layer}), by_word = repack_word_blocks({layer});
      const DeviceArray<RepackedLayer> layers({layer});
      const DeviceArray<RepackBlock> channel_blocks(by_channel), word_blocks(by_word);
      cuda_repack({layers.data(), channel_blocks.data(), word_blocks.data(), static_cast<int>(by_channel.size()),
                   static_cast<int>(by_word.size())},
                  nullptr);
      EXPECT_TRUE(packed.read() == cuda_conv2d_pack(conv, c.shape, c.params, c.weights))
          << conv.name << " " << c.describe();
    }
  }
}

}  // namespace
}  // namespace octet::kernels::testing
