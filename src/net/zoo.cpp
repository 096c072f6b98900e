// SPDX-License-Identifier: Apache-2.0
#include "src/net/zoo.h"

#include <fmt/format.h>

#include "src/base/error.h"
#include "src/base/names.h"
#include "src/net/graph_builder.h"
#include "src/net/shapes.h"

namespace octet {
namespace {

struct Entry {
  std::string_view name;
  std::function<Graph(const ModelSpec&)> build;
};

std::function<Graph(const ModelSpec&)> with_depth(Graph (*family)(const ModelSpec&, int), int depth) {
  return [family, depth](const ModelSpec& spec) { return family(spec, depth); };
}

std::function<Graph(const ModelSpec&)> with_size(const zoo::YoloxSize& size) {
  return [size](const ModelSpec& spec) { return zoo::yolox(spec, size); };
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> kEntries = {
      {"small_cnn", zoo::small_cnn},
      {"resnet8", with_depth(zoo::cifar_resnet, 8)},
      {"resnet20", with_depth(zoo::cifar_resnet, 20)},
      {"resnet32", with_depth(zoo::cifar_resnet, 32)},
      {"resnet44", with_depth(zoo::cifar_resnet, 44)},
      {"resnet56", with_depth(zoo::cifar_resnet, 56)},
      {"resnet9", zoo::resnet9},
      {"resnet18", with_depth(zoo::resnet, 18)},
      {"resnet34", with_depth(zoo::resnet, 34)},
      {"resnet50", with_depth(zoo::resnet, 50)},
      {"mobilenet_v2", zoo::mobilenet_v2},
      {"mobilenet_v3_large", zoo::mobilenet_v3_large},
      {"efficientnet_b0", zoo::efficientnet_b0},
      {"lraspp_mobilenet_v2", zoo::lraspp_mobilenet_v2},
      {"lraspp_mobilenet_v3_large", zoo::lraspp_mobilenet_v3_large},
      {"shufflenet_v2_x0_5", with_depth(zoo::shufflenet_v2, 48)},
      {"shufflenet_v2_x1_0", with_depth(zoo::shufflenet_v2, 116)},
      {"vgg11_bn", with_depth(zoo::vgg_bn, 11)},
      {"vgg16_bn", with_depth(zoo::vgg_bn, 16)},
      {"squeezenet1_1", zoo::squeezenet1_1},
      {"unet", with_depth(zoo::unet, 4)},
      {"unet2", with_depth(zoo::unet, 2)},
      {"unet3", with_depth(zoo::unet, 3)},
      {"yolox_nano", with_size({.depth = 0.33, .width = 0.25, .depthwise = true})},
      {"yolox_tiny", with_size({.depth = 0.33, .width = 0.375})},
      {"yolox_s", with_size({.depth = 0.33, .width = 0.5})},
  };
  return kEntries;
}

void require(bool good, const std::string& what) {
  if (!good) throw usage_error("model: " + what);
}

void check(const ModelSpec& spec) {
  if (const std::string fault = shape_fault(spec.input); !fault.empty()) throw usage_error("model: input " + fault);
  require(spec.classes >= 1 && spec.classes <= kMaxDimension,
          fmt::format("{} classes are not in 1..{}", spec.classes, kMaxDimension));
  require(spec.shortcut == 'A' || spec.shortcut == 'B',
          fmt::format("shortcut '{}' is neither 'A' nor 'B'", spec.shortcut));
  require(spec.width > 0 && spec.width <= 16, fmt::format("width {} is not in (0, 16]", spec.width));
  require(spec.dropout >= 0 && spec.dropout < 1, fmt::format("dropout {} is not in [0, 1)", spec.dropout));
  require(spec.stem == "auto" || spec.stem == "cifar" || spec.stem == "imagenet",
          fmt::format("stem '{}' is none of auto, cifar, imagenet", spec.stem));
}

}  // namespace

bool zoo::small_stem(const ModelSpec& spec) {
  if (spec.stem == "auto") return spec.input.h < 64 && spec.input.w < 64;
  return spec.stem == "cifar";
}

const std::vector<std::string_view>& model_names() {
  static const std::vector<std::string_view> kNames = [] {
    std::vector<std::string_view> names;
    for (const Entry& entry : entries()) names.push_back(entry.name);
    return names;
  }();
  return kNames;
}

Graph build_model(const ModelSpec& spec) {
  check(spec);
  if (spec.name == "graph") return zoo::custom(spec);
  for (const Entry& entry : entries()) {
    if (entry.name == spec.name) return entry.build(spec);
  }
  const std::vector<std::string_view>& names = model_names();
  throw usage_error(fmt::format("model: unknown model '{}'{}; known: {}, graph", spec.name,
                                did_you_mean(spec.name, names), fmt::join(names, ", ")));
}

}  // namespace octet
