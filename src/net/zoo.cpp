// SPDX-License-Identifier: Apache-2.0
#include "src/net/zoo.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/error.h"
#include "src/base/names.h"
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

Graph zoo::pooled_classifier(GraphBuilder& b, int x, const ModelSpec& spec, const ClassifierNames& names) {
  x = b.unary(Op::global_avg_pool, names.pool, x);
  x = b.unary(Op::flatten, "flatten", x);
  x = b.dropout(names.dropout, x, spec.dropout);
  b.linear(names.linear, x, spec.classes);
  return b.finish();
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

GraphBuilder::GraphBuilder(std::string name, const Shape& input, bool folded, double epsilon)
    : folded_(folded), epsilon_(epsilon) {
  graph_.name = std::move(name);
  append({.name = "input", .op = Op::input, .shape = input});
}

int GraphBuilder::append(Node node) {
  graph_.nodes.push_back(std::move(node));
  return static_cast<int>(graph_.nodes.size()) - 1;
}

int GraphBuilder::conv(const std::string& name, int x, const ConvSpec& spec) {
  Window window = square(spec.kernel, spec.stride, spec.pad);
  window.dilation_h = window.dilation_w = spec.dilation;
  return append({.name = name,
                 .op = Op::conv2d,
                 .inputs = {x},
                 .window = window,
                 .out_channels = spec.out_channels,
                 .groups = spec.groups,
                 .bias = spec.bias});
}

int GraphBuilder::conv_bn(const std::string& conv_name, const std::string& bn_name, int x, const ConvSpec& spec) {
  ConvSpec actual = spec;
  actual.bias = spec.bias || folded_;
  x = conv(conv_name, x, actual);
  if (folded_) return x;
  return append({.name = bn_name, .op = Op::batch_norm, .inputs = {x}, .epsilon = epsilon_});
}

int GraphBuilder::linear(const std::string& name, int x, int out_channels) {
  return append({.name = name, .op = Op::linear, .inputs = {x}, .out_channels = out_channels, .bias = true});
}

int GraphBuilder::max_pool(const std::string& name, int x, const Window& window) {
  return append({.name = name, .op = Op::max_pool, .inputs = {x}, .window = window});
}

int GraphBuilder::avg_pool(const std::string& name, int x, const Window& window) {
  return append({.name = name, .op = Op::avg_pool, .inputs = {x}, .window = window});
}

int GraphBuilder::subsample_pad(const std::string& name, int x, int out_channels, int stride) {
  return append({.name = name,
                 .op = Op::subsample_pad,
                 .inputs = {x},
                 .window = square(1, stride, 0),
                 .out_channels = out_channels});
}

int GraphBuilder::slice(const std::string& name, int x, int first_channel, int channels) {
  return append(
      {.name = name, .op = Op::slice, .inputs = {x}, .out_channels = channels, .first_channel = first_channel});
}

int GraphBuilder::resize(const std::string& name, int x, int factor, Op op) {
  return append({.name = name, .op = op, .inputs = {x}, .factor_h = factor, .factor_w = factor});
}

int GraphBuilder::channel_shuffle(const std::string& name, int x, int groups) {
  return append({.name = name, .op = Op::channel_shuffle, .inputs = {x}, .groups = groups});
}

int GraphBuilder::dropout(const std::string& name, int x, double probability) {
  if (probability == 0) return x;
  return append({.name = name, .op = Op::dropout, .inputs = {x}, .dropout = static_cast<float>(probability)});
}

int GraphBuilder::unary(Op op, const std::string& name, int x) {
  return append({.name = name, .op = op, .inputs = {x}});
}

int GraphBuilder::lookup(FunctionKind function, const std::string& name, int x) {
  return append({.name = name, .op = Op::lookup, .inputs = {x}, .function = {function}});
}

int GraphBuilder::join(Op op, const std::string& name, std::vector<int> inputs) {
  return append({.name = name, .op = op, .inputs = std::move(inputs)});
}

Graph GraphBuilder::finish(std::vector<int> outputs) {
  graph_.outputs = std::move(outputs);
  infer_shapes(graph_);
  return std::move(graph_);
}

Window square(int kernel, int stride, int pad) {
  return {
      .kernel_h = kernel, .kernel_w = kernel, .stride_h = stride, .stride_w = stride, .pad = even_padding(pad, pad)};
}

int scaled_channels(int channels, double width) {
  const double exact = channels * width;
  const int rounded = std::max(8, static_cast<int>(exact + 4) / 8 * 8);
  return rounded < 0.9 * exact ? rounded + 8 : rounded;
}

}  // namespace octet
