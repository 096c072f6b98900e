// ShuffleNetV2 (Ma et al. 2018); names as in torchvision.
#include <fmt/format.h>

#include "src/graph/graph_builder.h"
#include "src/graph/zoo_models.h"

namespace octet::zoo {
namespace {

struct ShuffleUnit {
  int in_channels, out_channels, stride;
};

/// Half of the channels pass, or with stride 2 all take both ways; then the halves are mixed.
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
  x = b.unary(Op::global_avg_pool, "mean", x);
  x = b.unary(Op::flatten, "flatten", x);
  x = b.dropout("dropout", x, spec.dropout);
  b.linear("fc", x, spec.classes);
  return b.finish();
}

}  // namespace octet::zoo
