// U-Net (Ronneberger, Fischer and Brox 2015): what the encoder saw at a resolution meets what the decoder brings back
// to it. Here with padding and BatchNorm, and the decoder grows by a resize and a convolution (Odena, Dumoulin and
// Olah, Deconvolution and checkerboard artifacts, 2016) in place of a transposed one.
#include <fmt/format.h>

#include "src/common/error.h"
#include "src/graph/graph_builder.h"
#include "src/graph/zoo_models.h"

namespace octet::zoo {
namespace {

constexpr int kChannels = 64;  // at the resolution of the picture, for width 1; twice as many after each halving

int conv_relu(GraphBuilder& b, const std::string& name, int x, int channels) {
  x = b.conv_bn(name + ".conv", name + ".bn", x, {.out_channels = channels, .kernel = 3, .pad = 1});
  return b.unary(Op::relu, name + ".relu", x);
}

int two_convs(GraphBuilder& b, const std::string& name, int x, int channels) {
  return conv_relu(b, name + ".1", conv_relu(b, name + ".0", x, channels), channels);
}

}  // namespace

Graph unet(const ModelSpec& spec, int depth) {
  const int smallest = 1 << depth;
  if (spec.input.h % smallest != 0 || spec.input.w % smallest != 0) {
    throw usage_error(
        fmt::format("model: {} halves the picture {} times, so {} must divide its height and width, {}x{}", spec.name,
                    depth, smallest, spec.input.h, spec.input.w));
  }
  const auto channels = [&](int level) { return scaled_channels(kChannels << level, spec.width); };
  GraphBuilder b(spec.name, spec.input, spec.folded);
  int x = b.input();
  std::vector<int> seen;  // by level, for the decoder
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
