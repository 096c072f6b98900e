#include "src/graph/graph.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "src/common/error.h"
#include "src/common/files.h"

namespace octet {
namespace {

constexpr std::array<std::pair<Op, std::string_view>, 15> kOpNames = {{
    {Op::input, "input"},
    {Op::conv2d, "conv2d"},
    {Op::batch_norm, "batch_norm"},
    {Op::relu, "relu"},
    {Op::relu6, "relu6"},
    {Op::add, "add"},
    {Op::concat, "concat"},
    {Op::max_pool, "max_pool"},
    {Op::avg_pool, "avg_pool"},
    {Op::global_avg_pool, "global_avg_pool"},
    {Op::flatten, "flatten"},
    {Op::linear, "linear"},
    {Op::dropout, "dropout"},
    {Op::subsample_pad, "subsample_pad"},
    {Op::requantize, "requantize"},
}};

const Shape& input_shape(const Graph& graph, const Node& node) {
  return graph.nodes[static_cast<size_t>(node.inputs.front())].shape;
}

void append_batch_norm(const std::string& name, long channels, std::vector<ParameterSpec>& specs) {
  using Kind = ParameterSpec::Kind;
  specs.push_back({name + ".weight", {channels}, Kind::bn_weight});
  specs.push_back({name + ".bias", {channels}, Kind::bn_bias});
  specs.push_back({name + ".running_mean", {channels}, Kind::bn_mean});
  specs.push_back({name + ".running_var", {channels}, Kind::bn_var});
}

void append_weight(const Graph& graph, const Node& node, std::vector<ParameterSpec>& specs) {
  using Kind = ParameterSpec::Kind;
  const Shape& in = input_shape(graph, node);
  const long out = node.out_channels;
  if (node.op == Op::conv2d) {
    const Window& w = node.window;
    specs.push_back({node.name + ".weight", {out, in.c / node.groups, w.kernel_h, w.kernel_w}, Kind::conv_weight});
  } else {
    specs.push_back({node.name + ".weight", {out, in.elements()}, Kind::linear_weight});
  }
  if (node.bias) specs.push_back({node.name + ".bias", {out}, Kind::bias});
}

}  // namespace

const std::vector<Op>& all_ops() {
  static const std::vector<Op> kOps = [] {
    std::vector<Op> ops;
    for (const auto& [op, name] : kOpNames) ops.push_back(op);
    return ops;
  }();
  return kOps;
}

std::string_view op_name(Op op) {
  for (const auto& [value, name] : kOpNames) {
    if (value == op) return name;
  }
  throw usage_error(fmt::format("op number {} does not exist", static_cast<int>(op)));
}

Op op_from_name(std::string_view name) {
  for (const auto& [value, candidate] : kOpNames) {
    if (candidate == name) return value;
  }
  const std::string near = nearest(
      name, [](size_t i) { return kOpNames[i].second; }, kOpNames.size());
  throw usage_error(fmt::format("unknown op '{}'{}", name, near.empty() ? "" : "; did you mean '" + near + "'?"));
}

long multiply_adds(const Graph& graph) {
  long total = 0;
  for (const Node& node : graph.nodes) {
    if (node.op != Op::conv2d && node.op != Op::linear) continue;
    const Shape& in = input_shape(graph, node);
    const Window& w = node.window;
    const long per_output =
        node.op == Op::linear ? in.elements() : static_cast<long>(in.c / node.groups) * w.kernel_h * w.kernel_w;
    total += node.shape.elements() * per_output;
  }
  return total;
}

std::vector<ParameterSpec> parameters(const Graph& graph) {
  std::vector<ParameterSpec> specs;
  for (const Node& node : graph.nodes) {
    if (node.op == Op::conv2d || node.op == Op::linear) append_weight(graph, node, specs);
    if (node.op == Op::batch_norm) append_batch_norm(node.name, node.shape.c, specs);
    if (!node.batch_norm.empty()) append_batch_norm(node.batch_norm, node.shape.c, specs);
  }
  return specs;
}

}  // namespace octet
