// VGG with BatchNorm (Simonyan and Zisserman 2014, configurations A and D; names as in torchvision). Small images: one
// linear classifier on the 512 channels that are left, as customary for CIFAR.
#include <fmt/format.h>

#include <vector>

#include "src/common/error.h"
#include "src/graph/graph_builder.h"
#include "src/graph/window.h"
#include "src/graph/zoo_models.h"

namespace octet::zoo {
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
  if (small_stem(spec)) {
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

}  // namespace octet::zoo
