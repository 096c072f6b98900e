// SPDX-License-Identifier: Apache-2.0
// MobileNetV2 (Sandler et al. 2018), SqueezeNet 1.1 (Iandola et al. 2016) and ShuffleNetV2 (Ma et al. 2018). Parameters
// are named as in torchvision.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "src/base/error.h"
#include "src/net/zoo.h"

namespace octet::zoo {
namespace {

/// One row of table 2 of the MobileNetV2 paper.
struct BottleneckRow {
  int expansion, channels, repeats, stride;
};

struct InvertedResidual {
  int in_channels, out_channels, expansion, stride, dilation;
};

int inverted_residual(GraphBuilder& b, const std::string& name, int x, const InvertedResidual& block) {
  const int hidden = block.in_channels * block.expansion;
  int y = x, index = 0;
  if (block.expansion != 1) {
    y = b.conv_bn(name + ".conv.0.0", name + ".conv.0.1", y, {hidden, 1, 1, 0});
    y = b.unary(Op::relu6, name + ".conv.0.2", y);
    ++index;
  }
  const std::string depthwise = fmt::format("{}.conv.{}", name, index);
  const ConvSpec depthwise_spec{hidden, 3, block.stride, block.dilation, hidden, false, block.dilation};
  y = b.conv_bn(depthwise + ".0", depthwise + ".1", y, depthwise_spec);
  y = b.unary(Op::relu6, depthwise + ".2", y);
  y = b.conv_bn(fmt::format("{}.conv.{}", name, index + 1), fmt::format("{}.conv.{}", name, index + 2), y,
                {block.out_channels, 1, 1, 0});
  if (block.stride != 1 || block.in_channels != block.out_channels) return y;
  return b.join(Op::add, name + ".add", {y, x});
}

/// A fire module: `squeeze` channels from a 1x1 convolution, then twice `expand` channels from a 1x1 and a 3x3 one.
struct Fire {
  int index, squeeze, expand;
};

int fire(GraphBuilder& b, int x, const Fire& f) {
  const std::string name = fmt::format("features.{}", f.index);
  x = b.conv(name + ".squeeze", x, {.out_channels = f.squeeze, .bias = true});
  x = b.unary(Op::relu, name + ".squeeze_activation", x);
  int narrow = b.conv(name + ".expand1x1", x, {.out_channels = f.expand, .bias = true});
  narrow = b.unary(Op::relu, name + ".expand1x1_activation", narrow);
  int wide = b.conv(name + ".expand3x3", x, {.out_channels = f.expand, .kernel = 3, .pad = 1, .bias = true});
  wide = b.unary(Op::relu, name + ".expand3x3_activation", wide);
  return b.join(Op::concat, name, {narrow, wide});
}

/// Appends the stem and the rows of table 2 as layers `name`.0 to `name`.17.
DenseFeatures bottlenecks(GraphBuilder& b, const std::string& name, const ModelSpec& spec, bool small, bool dense) {
  std::array<BottleneckRow, 7> rows = {
      {{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}}};
  constexpr size_t kLow = 2, kLast = 5;  // the row that ends at stride 8, and the one that begins stride 32
  if (small) rows[1].stride = 1;         // and the stem's: 32x32 pixels end as 4x4, as 224x224 end as 7x7
  if (dense) rows[kLast].stride = 1;
  int channels = scaled_channels(32, spec.width), index = 1;
  DenseFeatures features;
  int x = b.conv_bn(name + ".0.0", name + ".0.1", b.input(), {channels, 3, small ? 1 : 2, 1});
  x = b.unary(Op::relu6, name + ".0.2", x);
  for (size_t r = 0; r < rows.size(); ++r) {
    const int out = scaled_channels(rows[r].channels, spec.width);
    for (int i = 0; i < rows[r].repeats; ++i, ++index) {
      x = inverted_residual(
          b, fmt::format("{}.{}", name, index), x,
          {channels, out, rows[r].expansion, i == 0 ? rows[r].stride : 1, dense && r >= kLast ? 2 : 1});
      channels = out;
    }
    if (r == kLow) features.low = x;
  }
  features.high = x;
  return features;
}

}  // namespace

Graph mobilenet_v2(const ModelSpec& spec) {
  GraphBuilder b(spec.name, spec.input, spec.folded);
  int x = bottlenecks(b, "features", spec, small_stem(spec), /*dense=*/false).high;
  const int last = scaled_channels(1280, std::max(1.0, spec.width));
  x = b.conv_bn("features.18.0", "features.18.1", x, {last, 1, 1, 0});
  x = b.unary(Op::relu6, "features.18.2", x);
  return pooled_classifier(b, x, spec, {"classifier.1", "classifier.0"});
}

Graph lraspp_mobilenet_v2(const ModelSpec& spec) {
  GraphBuilder b(spec.name, spec.input, spec.folded);
  return lraspp(b, bottlenecks(b, "backbone", spec, /*small=*/false, /*dense=*/true), spec);
}

Graph lraspp(GraphBuilder& b, const DenseFeatures& features, const ModelSpec& spec) {
  constexpr int kChannels = 128, kLow = 8, kHigh = 16;
  if (spec.stem == "cifar")
    throw usage_error(fmt::format("model: {} has the imagenet stem alone; set stem auto or imagenet", spec.name));
  if (spec.input.h % kHigh != 0 || spec.input.w % kHigh != 0)
    throw usage_error(
        fmt::format("model: {} halves the image 4 times, so {} must divide its height and width, {}x{}; "
                    "data.fit: letterbox puts others into a larger input",
                    spec.name, kHigh, spec.input.h, spec.input.w));
  const std::string name = "classifier";
  int x = b.conv_bn(name + ".cbr.0", name + ".cbr.1", features.high, {.out_channels = kChannels});
  x = b.unary(Op::relu, name + ".cbr.2", x);
  int gate = b.unary(Op::global_avg_pool, name + ".scale.0", features.high);
  gate = b.conv(name + ".scale.1", gate, {.out_channels = kChannels});
  gate = b.lookup(FunctionKind::sigmoid, name + ".scale.2", gate);
  x = b.join(Op::mul, name + ".mul", {x, gate});
  x = b.resize(name + ".resize", x, kHigh / kLow, Op::resize_bilinear);
  const int low = b.conv(name + ".low_classifier", features.low, {.out_channels = spec.classes, .bias = true});
  const int high = b.conv(name + ".high_classifier", x, {.out_channels = spec.classes, .bias = true});
  b.resize("resize", b.join(Op::add, name + ".add", {low, high}), kLow, Op::resize_bilinear);
  return b.finish();
}

Graph squeezenet1_1(const ModelSpec& spec) {
  GraphBuilder b(spec.name, spec.input, spec.folded);
  const bool small = small_stem(spec);
  int x = b.conv("features.0", b.input(),
                 {.out_channels = 64, .kernel = 3, .stride = small ? 1 : 2, .pad = small ? 1 : 0, .bias = true});
  x = b.unary(Op::relu, "features.1", x);
  x = b.max_pool("features.2", x, square(3, 2, 0));
  x = fire(b, fire(b, x, {3, 16, 64}), {4, 16, 64});
  x = b.max_pool("features.5", x, square(3, 2, 0));
  x = fire(b, fire(b, x, {6, 32, 128}), {7, 32, 128});
  x = b.max_pool("features.8", x, square(3, 2, 0));
  x = fire(b, fire(b, x, {9, 48, 192}), {10, 48, 192});
  x = fire(b, fire(b, x, {11, 64, 256}), {12, 64, 256});
  x = b.dropout("classifier.0", x, spec.dropout);
  x = b.conv("classifier.1", x, {.out_channels = spec.classes, .bias = true});
  x = b.unary(Op::relu, "classifier.2", x);
  b.unary(Op::global_avg_pool, "classifier.3", x);  // [classes, 1, 1]: these are the logits
  return b.finish();
}

namespace {

struct ShuffleUnit {
  int in_channels, out_channels, stride;
};

/// A unit of ShuffleNetV2. With stride 1 the left half of the channels passes unchanged and the right half goes through
/// convolutions; with stride 2 all channels go through both branches. Then the halves are shuffled.
int shuffle_unit(GraphBuilder& b, const std::string& name, int x, const ShuffleUnit& unit) {
  const int half = unit.out_channels / 2;
  int left = x, right = x;
  if (unit.stride == 1) {
    left = b.slice(name + ".left", x, 0, half);
    right = b.slice(name + ".right", x, half, half);
  } else {
    left =
        b.conv_bn(name + ".branch1.0", name + ".branch1.1", x, {unit.in_channels, 3, unit.stride, 1, unit.in_channels});
    left = b.conv_bn(name + ".branch1.2", name + ".branch1.3", left, {.out_channels = half});
    left = b.unary(Op::relu, name + ".branch1.4", left);
  }
  right = b.conv_bn(name + ".branch2.0", name + ".branch2.1", right, {.out_channels = half});
  right = b.unary(Op::relu, name + ".branch2.2", right);
  right = b.conv_bn(name + ".branch2.3", name + ".branch2.4", right, {half, 3, unit.stride, 1, half});
  right = b.conv_bn(name + ".branch2.5", name + ".branch2.6", right, {.out_channels = half});
  right = b.unary(Op::relu, name + ".branch2.7", right);
  return b.channel_shuffle(name, b.join(Op::concat, name + ".concat", {left, right}), 2);
}

}  // namespace

Graph shufflenet_v2(const ModelSpec& spec, int first_channels) {
  constexpr int kStem = 24, kLast = 1024, kRepeats[] = {4, 8, 4};
  const bool small = small_stem(spec);
  GraphBuilder b(spec.name, spec.input, spec.folded);
  int x = b.conv_bn("conv1.0", "conv1.1", b.input(), {kStem, 3, small ? 1 : 2, 1});
  x = b.unary(Op::relu, "conv1.2", x);
  if (!small) x = b.max_pool("maxpool", x, square(3, 2, 1));
  int in = kStem, out = first_channels;
  for (int stage = 0; stage < 3; ++stage, out *= 2) {
    for (int i = 0; i < kRepeats[stage]; ++i, in = out)
      x = shuffle_unit(b, fmt::format("stage{}.{}", stage + 2, i), x, {in, out, i == 0 ? 2 : 1});
  }
  x = b.conv_bn("conv5.0", "conv5.1", x, {.out_channels = kLast});
  x = b.unary(Op::relu, "conv5.2", x);
  return pooled_classifier(b, x, spec, {"fc", "dropout", "mean"});
}

}  // namespace octet::zoo
