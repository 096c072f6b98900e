// SPDX-License-Identifier: Apache-2.0
// YOLOX (Ge et al. 2021, arXiv 2107.08430): CSPDarknet, a path aggregation pyramid and a head with a branch for classes
// and one for boxes, at strides 8, 16 and 32. Parameters are named as in Megvii-BaseDetection/YOLOX, whose first layer
// is the one difference: Focus, four interleaved quarters of the image under a convolution of 3x3, is written as the
// convolution of 6x6 with stride 2 that computes the same (src/train/model/weights.cpp reads its weights).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "src/base/error.h"
#include "src/net/zoo.h"

namespace octet::zoo {
namespace {

constexpr double kYoloxEpsilon = 1e-3;
constexpr int kLargestStride = 32;

/// Builds the parts of YOLOX, each under the name of its module.
struct Yolox {
  GraphBuilder& b;
  YoloxSize size;

  int channels(int full) const { return static_cast<int>(full * size.width); }
  int blocks(int full) const { return std::max(1, static_cast<int>(std::round(full * size.depth))); }

  /// BaseConv: convolution, BatchNorm, SiLU.
  int base(const std::string& name, int x, ConvSpec spec) {
    spec.pad = (spec.kernel - 1) / 2;
    return b.lookup(FunctionKind::silu, name + ".act", b.conv_bn(name + ".conv", name + ".bn", x, spec));
  }

  /// A convolution of 3x3 from `in` channels; of the smallest network one by channels and one of 1x1 behind it.
  int conv3(const std::string& name, int x, int in, int out, int stride) {
    if (!size.depthwise) return base(name, x, {.out_channels = out, .kernel = 3, .stride = stride});
    x = base(name + ".dconv", x, {.out_channels = in, .kernel = 3, .stride = stride, .groups = in});
    return base(name + ".pconv", x, {.out_channels = out});
  }

  /// CSPLayer: half of the channels pass `count` bottlenecks, with a residual where `adds`, half pass by.
  int csp(const std::string& name, int x, int out, int count, bool adds) {
    const int hidden = out / 2;
    int main = base(name + ".conv1", x, {.out_channels = hidden});
    const int beside = base(name + ".conv2", x, {.out_channels = hidden});
    for (int i = 0; i < count; ++i) {
      const std::string block = fmt::format("{}.m.{}", name, i);
      const int inner = base(block + ".conv1", main, {.out_channels = hidden});
      const int last = conv3(block + ".conv2", inner, hidden, hidden, 1);
      main = adds ? b.join(Op::add, block + ".add", {last, main}) : last;
    }
    return base(name + ".conv3", b.join(Op::concat, name + ".concat", {main, beside}), {.out_channels = out});
  }

  /// SPPBottleneck: the values beside their maxima over 5x5, 9x9 and 13x13 pixels.
  int pyramid_pool(const std::string& name, int x, int channels) {
    x = base(name + ".conv1", x, {.out_channels = channels / 2});
    std::vector<int> parts = {x};
    for (int i = 0; i < 3; ++i)
      parts.push_back(b.max_pool(fmt::format("{}.m.{}", name, i), x, square(5 + 4 * i, 1, 2 + 2 * i)));
    return base(name + ".conv2", b.join(Op::concat, name + ".concat", parts), {.out_channels = channels});
  }

  /// CSPDarknet. Returns the features of strides 8, 16 and 32.
  std::array<int, 3> darknet(const std::string& name) {
    int x = b.conv_bn(name + ".stem.conv.conv", name + ".stem.conv.bn", b.input(),
                      {.out_channels = channels(64), .kernel = 6, .stride = 2, .pad = 2});
    x = b.lookup(FunctionKind::silu, name + ".stem.conv.act", x);
    std::array<int, 3> features{};
    for (int i = 0; i < 4; ++i) {
      const std::string stage = fmt::format("{}.dark{}", name, i + 2);
      const int out = channels(128 << i);
      const bool last = i == 3;
      x = conv3(stage + ".0", x, out / 2, out, 2);
      if (last) x = pyramid_pool(stage + ".1", x, out);
      x = csp(stage + (last ? ".2" : ".1"), x, out, i == 0 || last ? blocks(3) : 3 * blocks(3), !last);
      if (i > 0) features[static_cast<size_t>(i) - 1] = x;
    }
    return features;
  }

  /// YOLOPAFPN: features of each stride that know the others', from coarse to fine and back.
  std::array<int, 3> aggregate(const std::string& name, const std::array<int, 3>& features) {
    const int fine = channels(256), middle = channels(512), coarse = channels(1024);
    const auto merged = [&](const std::string& layer, std::vector<int> inputs, int out) {
      const int joined = b.join(Op::concat, layer + ".inputs", std::move(inputs));
      return csp(layer, joined, out, blocks(3), /*adds=*/false);
    };
    const int to_middle = base(name + ".lateral_conv0", features[2], {.out_channels = middle});
    int x = b.resize(name + ".upsample0", to_middle, 2);
    x = merged(name + ".C3_p4", {x, features[1]}, middle);
    const int to_fine = base(name + ".reduce_conv1", x, {.out_channels = fine});
    x = b.resize(name + ".upsample1", to_fine, 2);
    std::array<int, 3> outputs{};
    outputs[0] = merged(name + ".C3_p3", {x, features[0]}, fine);
    x = conv3(name + ".bu_conv2", outputs[0], fine, fine, 2);
    outputs[1] = merged(name + ".C3_n3", {x, to_fine}, middle);
    x = conv3(name + ".bu_conv1", outputs[1], middle, middle, 2);
    outputs[2] = merged(name + ".C3_n4", {x, to_middle}, coarse);
    return outputs;
  }

  /// YOLOXHead: appends boxes, objectness and classes of each stride. Returns them.
  std::vector<int> head(const std::array<int, 3>& features, int classes) {
    std::vector<int> outputs;
    const int hidden = channels(256);
    for (size_t level = 0; level < features.size(); ++level) {
      const auto layer = [&](const char* part) { return fmt::format("head.{}.{}", part, level); };
      const auto branch = [&](const char* part, int x) {
        for (int i = 0; i < 2; ++i) x = conv3(fmt::format("{}.{}", layer(part), i), x, hidden, hidden, 1);
        return x;
      };
      const auto predict = [&](const char* part, int x, int out) {
        outputs.push_back(b.conv(layer(part), x, {.out_channels = out, .bias = true}));
      };
      const int stem = base(layer("stems"), features[level], {.out_channels = hidden});
      predict("cls_preds", branch("cls_convs", stem), classes);
      const int of_boxes = branch("reg_convs", stem);
      predict("reg_preds", of_boxes, 4);
      predict("obj_preds", of_boxes, 1);
    }
    return outputs;
  }
};

}  // namespace

Graph yolox(const ModelSpec& spec, const YoloxSize& size) {
  if (spec.input.h % kLargestStride != 0 || spec.input.w % kLargestStride != 0)
    throw usage_error(fmt::format("model: {} takes images whose sides are multiples of {}, not {}x{}", spec.name,
                                  kLargestStride, spec.input.h, spec.input.w));
  if (spec.stem == "cifar")
    throw usage_error(fmt::format("model: {} has one stem; set stem auto or imagenet", spec.name));
  GraphBuilder b(spec.name, spec.input, spec.folded, kYoloxEpsilon);
  Yolox parts{b, size};
  return b.finish(parts.head(parts.aggregate("backbone", parts.darknet("backbone.backbone")), spec.classes));
}

}  // namespace octet::zoo
