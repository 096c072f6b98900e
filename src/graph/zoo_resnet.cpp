// Residual networks: CIFAR ResNets (He et al., "Deep residual learning for image recognition", 2015, section 4.2; names
// as in akamaster/pytorch_resnet_cifar10), ImageNet ResNets (names and strides as in torchvision), and small_cnn.
#include <fmt/format.h>

#include <array>

#include "src/graph/graph_builder.h"
#include "src/graph/zoo_models.h"

namespace octet::zoo {
namespace {

struct Stage {
  int channels, stride;
};

/// conv-bn-relu-conv-bn plus `shortcut`, then ReLU. Returns the block's output.
int basic_body(GraphBuilder& b, const std::string& name, int x, const Stage& stage, int shortcut) {
  int y = b.conv_bn(name + ".conv1", name + ".bn1", x, {stage.channels, 3, stage.stride, 1});
  y = b.unary(Op::relu, name + ".relu1", y);
  y = b.conv_bn(name + ".conv2", name + ".bn2", y, {stage.channels, 3, 1, 1});
  y = b.join(Op::add, name + ".add", {y, shortcut});
  return b.unary(Op::relu, name + ".relu", y);
}

/// 1x1 reduce, 3x3 with the stride ("v1.5", as in torchvision), 1x1 expand to four times the channels.
int bottleneck_body(GraphBuilder& b, const std::string& name, int x, const Stage& stage, int shortcut) {
  int y = b.conv_bn(name + ".conv1", name + ".bn1", x, {stage.channels, 1, 1, 0});
  y = b.unary(Op::relu, name + ".relu1", y);
  y = b.conv_bn(name + ".conv2", name + ".bn2", y, {stage.channels, 3, stage.stride, 1});
  y = b.unary(Op::relu, name + ".relu2", y);
  y = b.conv_bn(name + ".conv3", name + ".bn3", y, {4 * stage.channels, 1, 1, 0});
  y = b.join(Op::add, name + ".add", {y, shortcut});
  return b.unary(Op::relu, name + ".relu", y);
}

int classifier(GraphBuilder& b, const std::string& name, int x, const ModelSpec& spec) {
  x = b.unary(Op::global_avg_pool, "avgpool", x);
  x = b.unary(Op::flatten, "flatten", x);
  x = b.dropout("dropout", x, spec.dropout);
  return b.linear(name, x, spec.classes);
}

}  // namespace

Graph cifar_resnet(const ModelSpec& spec, int depth) {
  GraphBuilder b(spec.name, spec.input, spec.folded);
  int x = b.conv_bn("conv1", "bn1", b.input(), {16, 3, 1, 1});
  x = b.unary(Op::relu, "relu", x);
  int channels = 16;
  const std::array<Stage, 3> stages = {{{16, 1}, {32, 2}, {64, 2}}};
  for (size_t s = 0; s < stages.size(); ++s) {
    for (int i = 0; i < (depth - 2) / 6; ++i) {
      const std::string name = fmt::format("layer{}.{}", s + 1, i);
      const Stage stage{stages[s].channels, i == 0 ? stages[s].stride : 1};
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
  classifier(b, "linear", x, spec);
  return b.finish();
}

Graph resnet(const ModelSpec& spec, int depth) {
  const bool bottleneck = depth == 50;
  const int expansion = bottleneck ? 4 : 1;
  const std::array<int, 4> blocks = depth == 18 ? std::array{2, 2, 2, 2} : std::array{3, 4, 6, 3};
  const std::array<Stage, 4> stages = {{{64, 1}, {128, 2}, {256, 2}, {512, 2}}};

  GraphBuilder b(spec.name, spec.input, spec.folded);
  const bool small = small_stem(spec);
  int x = b.conv_bn("conv1", "bn1", b.input(), small ? ConvSpec{64, 3, 1, 1} : ConvSpec{64, 7, 2, 3});
  x = b.unary(Op::relu, "relu", x);
  if (!small) x = b.max_pool("maxpool", x, square(3, 2, 1));
  int channels = 64;
  for (size_t s = 0; s < stages.size(); ++s) {
    for (int i = 0; i < blocks[s]; ++i) {
      const std::string name = fmt::format("layer{}.{}", s + 1, i);
      const Stage stage{stages[s].channels, i == 0 ? stages[s].stride : 1};
      const int out = expansion * stage.channels;
      int shortcut = x;
      if (stage.stride != 1 || out != channels) {
        shortcut = b.conv_bn(name + ".downsample.0", name + ".downsample.1", x, {out, 1, stage.stride, 0});
      }
      x = bottleneck ? bottleneck_body(b, name, x, stage, shortcut) : basic_body(b, name, x, stage, shortcut);
      channels = out;
    }
  }
  classifier(b, "fc", x, spec);
  return b.finish();
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
  classifier(b, "linear", x, spec);
  return b.finish();
}

}  // namespace octet::zoo
