// SPDX-License-Identifier: Apache-2.0
// Networks of plain 3x3 convolutions. small_cnn; CIFAR ResNets (He et al. 2015, section 4.2; parameters named as in
// akamaster/pytorch_resnet_cifar10) and ImageNet ResNets; VGG with BatchNorm (Simonyan and Zisserman 2014,
// configurations A and D), ResNets and VGG named and strided as in torchvision; ResNet-9 (Page 2018, "How to train your
// ResNet 4: Architecture", https://myrtle.ai/learn/how-to-train-your-resnet-4-architecture), made to learn CIFAR-10 in
// few seconds; U-Net (Ronneberger, Fischer and Brox 2015), here with padding and BatchNorm, whose decoder grows by a
// resize and a convolution (Odena, Dumoulin and Olah, "Deconvolution and checkerboard artifacts", 2016) in place of a
// transposed one.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "src/base/error.h"
#include "src/net/shapes.h"
#include "src/net/zoo.h"

namespace octet::zoo {
namespace {

struct ResidualStage {
  int channels, stride;
};

/// Appends conv-bn-relu-conv-bn, the sum with `shortcut`, and a ReLU, whose index it returns.
int basic_body(GraphBuilder& b, const std::string& name, int x, const ResidualStage& stage, int shortcut) {
  int y = b.conv_bn(name + ".conv1", name + ".bn1", x, {stage.channels, 3, stage.stride, 1});
  y = b.unary(Op::relu, name + ".relu1", y);
  y = b.conv_bn(name + ".conv2", name + ".bn2", y, {stage.channels, 3, 1, 1});
  y = b.join(Op::add, name + ".add", {y, shortcut});
  return b.unary(Op::relu, name + ".relu", y);
}

/// Appends a 1x1 convolution, a 3x3 one with the stride ("v1.5"), a 1x1 one to four times the channels, the sum with
/// `shortcut`, and a ReLU.
int bottleneck_body(GraphBuilder& b, const std::string& name, int x, const ResidualStage& stage, int shortcut) {
  int y = b.conv_bn(name + ".conv1", name + ".bn1", x, {stage.channels, 1, 1, 0});
  y = b.unary(Op::relu, name + ".relu1", y);
  y = b.conv_bn(name + ".conv2", name + ".bn2", y, {stage.channels, 3, stage.stride, 1});
  y = b.unary(Op::relu, name + ".relu2", y);
  y = b.conv_bn(name + ".conv3", name + ".bn3", y, {4 * stage.channels, 1, 1, 0});
  y = b.join(Op::add, name + ".add", {y, shortcut});
  return b.unary(Op::relu, name + ".relu", y);
}

}  // namespace

Graph cifar_resnet(const ModelSpec& spec, int depth) {
  GraphBuilder b(spec.name, spec.input, spec.folded);
  int x = b.conv_bn("conv1", "bn1", b.input(), {16, 3, 1, 1});
  x = b.unary(Op::relu, "relu", x);
  int channels = 16;
  const std::array<ResidualStage, 3> stages = {{{16, 1}, {32, 2}, {64, 2}}};
  for (size_t s = 0; s < stages.size(); ++s) {
    for (int i = 0; i < (depth - 2) / 6; ++i) {
      const std::string name = fmt::format("layer{}.{}", s + 1, i);
      const ResidualStage stage{stages[s].channels, i == 0 ? stages[s].stride : 1};
      int shortcut = x;
      if (stage.channels != channels && spec.shortcut == 'A') {
        shortcut = b.subsample_pad(name + ".shortcut", x, stage.channels, stage.stride);
      } else if (stage.channels != channels) {
        shortcut = b.conv_bn(name + ".shortcut.0", name + ".shortcut.1", x, {stage.channels, 1, stage.stride, 0});
      }
      x = basic_body(b, name, x, stage, shortcut);
      channels = stage.channels;
    }
  }
  return pooled_classifier(b, x, spec, {"linear"});
}

Graph resnet(const ModelSpec& spec, int depth) {
  const bool bottleneck = depth == 50;
  const int expansion = bottleneck ? 4 : 1;
  const std::array<int, 4> blocks = depth == 18 ? std::array{2, 2, 2, 2} : std::array{3, 4, 6, 3};
  const std::array<ResidualStage, 4> stages = {{{64, 1}, {128, 2}, {256, 2}, {512, 2}}};

  GraphBuilder b(spec.name, spec.input, spec.folded);
  const bool small = small_stem(spec);
  int x = b.conv_bn("conv1", "bn1", b.input(), small ? ConvSpec{64, 3, 1, 1} : ConvSpec{64, 7, 2, 3});
  x = b.unary(Op::relu, "relu", x);
  if (!small) x = b.max_pool("maxpool", x, square(3, 2, 1));
  int channels = 64;
  for (size_t s = 0; s < stages.size(); ++s) {
    for (int i = 0; i < blocks[s]; ++i) {
      const std::string name = fmt::format("layer{}.{}", s + 1, i);
      const ResidualStage stage{stages[s].channels, i == 0 ? stages[s].stride : 1};
      const int out = expansion * stage.channels;
      int shortcut = x;
      if (stage.stride != 1 || out != channels) {
        shortcut = b.conv_bn(name + ".downsample.0", name + ".downsample.1", x, {out, 1, stage.stride, 0});
      }
      x = bottleneck ? bottleneck_body(b, name, x, stage, shortcut) : basic_body(b, name, x, stage, shortcut);
      channels = out;
    }
  }
  return pooled_classifier(b, x, spec, {"fc"});
}

Graph small_cnn(const ModelSpec& spec) {
  const auto wide = [&](int channels) { return scaled_channels(channels, spec.width); };
  GraphBuilder b(spec.name, spec.input, spec.folded);
  const auto conv_bn_relu = [&](const std::string& index, int x, const ConvSpec& conv) {
    return b.unary(Op::relu, "relu" + index, b.conv_bn("conv" + index, "bn" + index, x, conv));
  };
  int x = conv_bn_relu("1", b.input(), {wide(16), 3, 1, 1});
  x = conv_bn_relu("2", x, {wide(32), 3, 2, 1});
  int y = b.conv_bn("conv3", "bn3", x, {wide(32), 3, 1, 1});
  y = b.join(Op::add, "add3", {y, x});
  x = b.unary(Op::relu, "relu3", y);
  x = conv_bn_relu("4", x, {wide(64), 3, 2, 1});
  x = conv_bn_relu("5", x, {wide(128), 1, 1, 0});
  return pooled_classifier(b, x, spec, {"linear"});
}

namespace {

constexpr int kPool = 0;

std::vector<int> configuration(int depth) {
  if (depth == 11) return {64, kPool, 128, kPool, 256, 256, kPool, 512, 512, kPool, 512, 512, kPool};
  return {64, 64, kPool, 128, 128, kPool, 256, 256, 256, kPool, 512, 512, 512, kPool, 512, 512, 512, kPool};
}

}  // namespace

Graph vgg_bn(const ModelSpec& spec, int depth) {
  GraphBuilder b(spec.name, spec.input, spec.folded);
  int x = b.input(), index = 0;
  for (const int channels : configuration(depth)) {
    const auto feature = [&](int i) { return fmt::format("features.{}", i); };
    if (channels == kPool) {
      x = b.max_pool(feature(index), x, square(2, 2, 0));
      index += 1;
    } else {
      // A convolution before a BatchNorm needs no bias, but torchvision's has one: files with its names must load.
      x = b.conv_bn(feature(index), feature(index + 1), x, {channels, 3, 1, 1, 1, true});
      x = b.unary(Op::relu, feature(index + 2), x);
      index += 3;
    }
  }
  x = b.unary(Op::flatten, "flatten", x);
  if (small_stem(spec)) {  // CIFAR: one linear layer on the 512 channels
    x = b.dropout("dropout", x, spec.dropout);
    b.linear("classifier", x, spec.classes);
    return b.finish();
  }
  if (spec.input.h / 32 != 7 || spec.input.w / 32 != 7) {
    throw usage_error(fmt::format("model {}: with the imagenet stem the image must be 224 to 255 pixels, not {}",
                                  spec.name, to_string(spec.input)));
  }
  x = b.unary(Op::relu, "classifier.1", b.linear("classifier.0", x, 4096));
  x = b.dropout("classifier.2", x, spec.dropout);
  x = b.unary(Op::relu, "classifier.4", b.linear("classifier.3", x, 4096));
  x = b.dropout("classifier.5", x, spec.dropout);
  b.linear("classifier.6", x, spec.classes);
  return b.finish();
}

namespace {

constexpr int kChannels = 64;  // at full resolution, for width 1; twice as many after each halving

int conv_relu(GraphBuilder& b, const std::string& name, int x, int channels) {
  x = b.conv_bn(name + ".conv", name + ".bn", x, {.out_channels = channels, .kernel = 3, .pad = 1});
  return b.unary(Op::relu, name + ".relu", x);
}

/// Appends a convolution and a pool that halves the image; with `residual`, two more convolutions and the sum of both.
int pooled_stage(GraphBuilder& b, const std::string& name, int x, int channels, bool residual) {
  x = b.max_pool(name + ".pool", conv_relu(b, name, x, channels), square(2, 2, 0));
  if (!residual) return x;
  const int y = conv_relu(b, name + ".res2", conv_relu(b, name + ".res1", x, channels), channels);
  return b.join(Op::add, name + ".add", {y, x});
}

int two_convs(GraphBuilder& b, const std::string& name, int x, int channels) {
  return conv_relu(b, name + ".1", conv_relu(b, name + ".0", x, channels), channels);
}

}  // namespace

Graph resnet9(const ModelSpec& spec) {
  if (std::min(spec.input.h, spec.input.w) < 8)
    throw usage_error(
        fmt::format("model: resnet9 halves the image three times, {} is too small", to_string(spec.input)));
  const auto channels = [&](int level) { return scaled_channels(kChannels << level, spec.width); };
  GraphBuilder b(spec.name, spec.input, spec.folded);
  int x = conv_relu(b, "prep", b.input(), channels(0));
  x = pooled_stage(b, "layer1", x, channels(1), true);
  x = pooled_stage(b, "layer2", x, channels(2), false);
  x = pooled_stage(b, "layer3", x, channels(3), true);
  const int h = spec.input.h / 8, w = spec.input.w / 8;  // what three pools leave
  x = b.max_pool("pool", x, {.kernel_h = h, .kernel_w = w, .stride_h = h, .stride_w = w});
  // One pixel and eight zeros: a ninth of each maximum. Logits of the maxima themselves would be so large that the rate
  // at which the other layers learn fast makes the last one diverge; Page takes an eighth of the logits.
  x = b.avg_pool("scale", x, square(3, 1, 1));
  x = b.unary(Op::flatten, "flatten", x);
  x = b.dropout("dropout", x, spec.dropout);
  b.linear("linear", x, spec.classes);
  return b.finish();
}

Graph unet(const ModelSpec& spec, int depth) {
  const int smallest = 1 << depth;
  if (spec.input.h % smallest != 0 || spec.input.w % smallest != 0) {
    throw usage_error(fmt::format("model: {} halves the image {} times, so {} must divide its height and width, {}x{}",
                                  spec.name, depth, smallest, spec.input.h, spec.input.w));
  }
  const auto channels = [&](int level) { return scaled_channels(kChannels << level, spec.width); };
  GraphBuilder b(spec.name, spec.input, spec.folded);
  int x = b.input();
  std::vector<int> seen;  // the encoder's outputs by level, which the decoder joins
  for (int level = 0; level < depth; ++level) {
    seen.push_back(two_convs(b, fmt::format("down{}", level), x, channels(level)));
    x = b.max_pool(fmt::format("down{}.pool", level), seen.back(), square(2, 2, 0));
  }
  x = two_convs(b, "bottom", x, channels(depth));
  for (int level = depth - 1; level >= 0; --level) {
    const std::string name = fmt::format("up{}", level);
    x = conv_relu(b, name + ".grow", b.resize(name + ".resize", x, 2), channels(level));
    x = two_convs(b, name, b.join(Op::concat, name + ".concat", {seen[level], x}), channels(level));
  }
  b.conv("head", x, {.out_channels = spec.classes, .kernel = 1, .bias = true});
  return b.finish();
}

}  // namespace octet::zoo
