#include "src/graph/graph.h"

#include <fmt/format.h>

#include "src/common/error.h"
#include "src/graph/outputs_text.h"

namespace octet {
namespace {

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

int Graph::classes() const {
  if (outputs.size() == 1) {
    const Shape& shape = nodes[static_cast<size_t>(outputs[0])].shape;
    if (shape.h == 1 && shape.w == 1) return shape.c;
  }
  throw usage_error(
      fmt::format("{} gives {}; a classifier gives one output, [classes, 1, 1]", name, outputs_text(*this)));
}

long multiply_adds(const Graph& graph) {
  long total = 0;
  for (const Node& node : graph.nodes) {
    if (!has_weight(node.op) && node.op != Op::matmul) continue;
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
    if (has_weight(node.op)) append_weight(graph, node, specs);
    if (node.op == Op::batch_norm) append_batch_norm(node.name, node.shape.c, specs);
    if (!node.batch_norm.empty()) append_batch_norm(node.batch_norm, node.shape.c, specs);
  }
  return specs;
}

}  // namespace octet
