// Shape inference, which is also the check of a float graph.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "src/common/error.h"
#include "src/common/saturating_product.h"
#include "src/graph/graph.h"
#include "src/graph/infer_shape.h"
#include "src/graph/limits.h"
#include "src/graph/op_traits.h"
#include "src/graph/output_shape.h"
#include "src/graph/window.h"

namespace octet {
namespace {

[[noreturn]] void fail(const Node& node, const std::string& what) {
  throw usage_error(fmt::format("node '{}' ({}): {}", node.name, op_name(node.op), what));
}

void check_inputs(const Node& node, int index) {
  if (const std::string fault = arity_fault(traits(node.op), node.inputs.size()); !fault.empty())
    fail(node, "has " + fault);
  for (const int input : node.inputs) {
    if (input < 0 || input >= index) fail(node, fmt::format("input {} is not an earlier node", input));
  }
}

/// What an operator has beside its shape.
void check_parameters(const Node& node) {
  if (!(node.dropout >= 0.0f && node.dropout < 1.0f))
    fail(node, fmt::format("dropout {} is not in [0, 1)", node.dropout));
  if (node.op == Op::batch_norm && !(node.epsilon > 0 && node.epsilon <= 1))
    fail(node, fmt::format("epsilon {} is not in (0, 1]", node.epsilon));
  if (!(node.curve.slope >= 0.0f && node.curve.slope < 1.0f))
    fail(node, fmt::format("slope {} is not in [0, 1)", node.curve.slope));
  if (!(node.scale > 0.0f && std::isfinite(node.scale)))
    fail(node, fmt::format("scale {} is not a positive number", node.scale));
}

Shape shape_of(const Graph& graph, const Node& node) {
  if (node.op == Op::input) return node.shape;
  std::vector<Shape> inputs;
  for (const int input : node.inputs) inputs.push_back(graph.nodes[static_cast<size_t>(input)].shape);
  const OutputShape out = output_shape(shape_attributes(node), inputs);
  if (!out.fault.empty()) fail(node, out.fault);
  return out.shape;
}

void check_outputs(const Graph& graph) {
  std::set<int> seen;
  for (const int output : graph.outputs) {
    if (output < 0 || output >= static_cast<int>(graph.nodes.size())) {
      throw usage_error(
          fmt::format("graph '{}': output {} is not one of its {} nodes", graph.name, output, graph.nodes.size()));
    }
    const Node& node = graph.nodes[static_cast<size_t>(output)];
    if (node.op == Op::input) fail(node, "an output that is nothing but the input");
    if (!seen.insert(output).second) fail(node, "an output twice");
  }
}

}  // namespace

void infer_shape(const Graph& graph, Node& node, int index) {
  check_inputs(node, index);
  check_parameters(node);
  node.shape = shape_of(graph, node);
  if (const std::string fault = shape_fault(node.shape); !fault.empty()) fail(node, fault);
}

void infer_shapes(Graph& graph) {
  if (graph.nodes.empty()) throw usage_error(fmt::format("graph '{}' has no nodes", graph.name));
  if (graph.nodes.size() > static_cast<size_t>(kMaxNodes)) {
    throw usage_error(fmt::format("graph '{}' has {} nodes, more than {}", graph.name, graph.nodes.size(), kMaxNodes));
  }
  std::set<std::string_view> names;
  int64_t multiply_adds_left = kMaxMultiplyAdds;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& node = graph.nodes[i];
    if (node.name.empty()) fail(node, fmt::format("node {} has no name", i));
    if (!names.insert(node.name).second) fail(node, "two nodes of this name");
    if ((node.op == Op::input) != (i == 0)) fail(node, "the input is node 0, and only node 0");
    infer_shape(graph, node, static_cast<int>(i));
    if (has_weight(node.op) || node.op == Op::matmul) {  // both: a sum over the channels of a group
      const int64_t in_channels = graph.nodes[static_cast<size_t>(node.inputs.front())].shape.c / node.groups;
      multiply_adds_left -= std::min(
          multiply_adds_left,
          saturating_product({node.shape.elements(), in_channels, node.window.kernel_h, node.window.kernel_w}));
      if (multiply_adds_left == 0) fail(node, fmt::format("more than {} multiply-adds an image", kMaxMultiplyAdds));
    }
  }
  if (graph.outputs.empty()) graph.outputs = {static_cast<int>(graph.nodes.size()) - 1};
  check_outputs(graph);
}

}  // namespace octet
