// SPDX-License-Identifier: Apache-2.0
// EfficientNet-B0 (Tan and Le 2019) and MobileNetV3-Large (Howard et al. 2019): inverted residuals with
// squeeze-and-excite (Hu et al. 2018). Parameters are named as in torchvision.
#include <fmt/format.h>

#include <array>

#include "src/net/zoo.h"

namespace octet::zoo {
namespace {

enum class Act { relu, silu, hard_swish };

int activation(GraphBuilder& b, Act act, const std::string& name, int x) {
  if (act == Act::relu) return b.unary(Op::relu, name, x);
  return b.lookup(act == Act::silu ? FunctionKind::silu : FunctionKind::hard_swish, name, x);
}

/// Appends convolution, BatchNorm and activation as `name`.0 to `name`.2, like torchvision's Conv2dNormActivation.
int conv_act(GraphBuilder& b, const std::string& name, int x, const ConvSpec& spec, Act act) {
  return activation(b, act, name + ".2", b.conv_bn(name + ".0", name + ".1", x, spec));
}

/// Squeeze-and-excite: two 1x1 convolutions make a factor for each channel from the averages of all channels.
struct Excite {
  int channels;  ///< between the two convolutions
  Act act;
  FunctionKind gate;
};

int excite(GraphBuilder& b, const std::string& name, int x, int channels, const Excite& e) {
  int gate = b.unary(Op::global_avg_pool, name + ".avgpool", x);
  gate = b.conv(name + ".fc1", gate, {.out_channels = e.channels, .bias = true});
  gate = activation(b, e.act, name + ".activation", gate);
  gate = b.conv(name + ".fc2", gate, {.out_channels = channels, .bias = true});
  gate = b.lookup(e.gate, name + ".scale_activation", gate);
  return b.join(Op::mul, name, {x, gate});
}

struct Block {
  int in, expanded, out, kernel, stride;
  Act act;
  bool excites;
  int dilation = 1;
};

int inverted_residual(GraphBuilder& b, const std::string& name, int x, const Block& block, const Excite& e) {
  int y = x, index = 0;
  const auto part = [&] { return fmt::format("{}.block.{}", name, index++); };
  if (block.expanded != block.in) y = conv_act(b, part(), y, {.out_channels = block.expanded}, block.act);
  const ConvSpec depthwise{block.expanded, block.kernel, block.stride,  block.kernel / 2 * block.dilation,
                           block.expanded, false,        block.dilation};
  y = conv_act(b, part(), y, depthwise, block.act);
  if (block.excites) y = excite(b, part(), y, block.expanded, e);
  const std::string project = part();
  y = b.conv_bn(project + ".0", project + ".1", y, {.out_channels = block.out});
  if (block.stride != 1 || block.in != block.out) return y;
  return b.join(Op::add, name + ".add", {y, x});
}

/// One row of table 1 of the EfficientNet paper.
struct Stage {
  int expansion, kernel, stride, channels, repeats;
};

}  // namespace

Graph efficientnet_b0(const ModelSpec& spec) {
  std::array<Stage, 7> stages = {{{1, 3, 1, 16, 1},
                                  {6, 3, 2, 24, 2},
                                  {6, 5, 2, 40, 2},
                                  {6, 3, 2, 80, 3},
                                  {6, 5, 1, 112, 3},
                                  {6, 5, 2, 192, 4},
                                  {6, 3, 1, 320, 1}}};
  const bool small = small_stem(spec);
  if (small) stages[1].stride = 1;  // and the stem's: 32x32 pixels end as 4x4
  GraphBuilder b(spec.name, spec.input, spec.folded);
  int x = conv_act(b, "features.0", b.input(), {32, 3, small ? 1 : 2, 1}, Act::silu);
  int channels = 32, index = 1;
  for (const Stage& stage : stages) {
    for (int i = 0; i < stage.repeats; ++i) {
      x = inverted_residual(b, fmt::format("features.{}.{}", index, i), x,
                            {.in = channels,
                             .expanded = channels * stage.expansion,
                             .out = stage.channels,
                             .kernel = stage.kernel,
                             .stride = i == 0 ? stage.stride : 1,
                             .act = Act::silu,
                             .excites = true},
                            {channels / 4, Act::silu, FunctionKind::sigmoid});
      channels = stage.channels;
    }
    ++index;
  }
  x = conv_act(b, "features.8", x, {.out_channels = 1280}, Act::silu);
  return pooled_classifier(b, x, spec, {"classifier.1", "classifier.0"});
}

namespace {

/// Appends MobileNetV3-Large up to its last convolution as layers `name`.0 to `name`.16.
DenseFeatures large_blocks(GraphBuilder& b, const std::string& name, bool small, bool dense) {
  constexpr Act kRelu = Act::relu, kHard = Act::hard_swish;
  std::array<Block, 15> blocks = {{{16, 16, 16, 3, 1, kRelu, false},  // table 1 of the paper
                                   {16, 64, 24, 3, 2, kRelu, false},
                                   {24, 72, 24, 3, 1, kRelu, false},
                                   {24, 72, 40, 5, 2, kRelu, true},
                                   {40, 120, 40, 5, 1, kRelu, true},
                                   {40, 120, 40, 5, 1, kRelu, true},
                                   {40, 240, 80, 3, 2, kHard, false},
                                   {80, 200, 80, 3, 1, kHard, false},
                                   {80, 184, 80, 3, 1, kHard, false},
                                   {80, 184, 80, 3, 1, kHard, false},
                                   {80, 480, 112, 3, 1, kHard, true},
                                   {112, 672, 112, 3, 1, kHard, true},
                                   {112, 672, 160, 5, 2, kHard, true},
                                   {160, 960, 160, 5, 1, kHard, true},
                                   {160, 960, 160, 5, 1, kHard, true}}};
  constexpr size_t kLow = 3, kLast = 12;  // the blocks that begin stride 8, as torchvision has it, and stride 32
  if (small) blocks[1].stride = 1;        // and the stem's: 32x32 pixels end as 4x4
  for (size_t i = kLast; dense && i < blocks.size(); ++i) blocks[i].stride = 1, blocks[i].dilation = 2;
  DenseFeatures features;
  int x = conv_act(b, name + ".0", b.input(), {16, 3, small ? 1 : 2, 1}, kHard);
  for (size_t i = 0; i < blocks.size(); ++i) {
    x = inverted_residual(b, fmt::format("{}.{}", name, i + 1), x, blocks[i],
                          {scaled_channels(blocks[i].expanded, 0.25), Act::relu, FunctionKind::hard_sigmoid});
    if (i == kLow) features.low = x;
  }
  features.high = conv_act(b, name + ".16", x, {.out_channels = 960}, kHard);
  return features;
}

constexpr double kLargeEpsilon = 0.001;

}  // namespace

Graph lraspp_mobilenet_v3_large(const ModelSpec& spec) {
  GraphBuilder b(spec.name, spec.input, spec.folded, kLargeEpsilon);
  return lraspp(b, large_blocks(b, "backbone", /*small=*/false, /*dense=*/true), spec);
}

Graph mobilenet_v3_large(const ModelSpec& spec) {
  constexpr Act kHard = Act::hard_swish;
  GraphBuilder b(spec.name, spec.input, spec.folded, kLargeEpsilon);
  int x = large_blocks(b, "features", small_stem(spec), /*dense=*/false).high;
  x = b.unary(Op::global_avg_pool, "avgpool", x);
  x = b.unary(Op::flatten, "flatten", x);
  x = b.linear("classifier.0", x, 1280);
  x = activation(b, kHard, "classifier.1", x);
  x = b.dropout("classifier.2", x, spec.dropout);
  b.linear("classifier.3", x, spec.classes);
  return b.finish();
}

}  // namespace octet::zoo
