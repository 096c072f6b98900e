// SPDX-License-Identifier: Apache-2.0
#include "src/net/graph_builder.h"

#include <algorithm>

namespace octet {

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

int GraphBuilder::lookup(Function function, const std::string& name, int x) {
  return append({.name = name, .op = Op::lookup, .inputs = {x}, .curve = {function}});
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
