// SPDX-License-Identifier: Apache-2.0
#include "src/net/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "src/base/error.h"
#include "src/base/numbers.h"
#include "src/net/op_traits.h"
#include "src/net/shapes.h"

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

std::vector<int> reader_counts(const Graph& graph) {
  std::vector<int> readers(graph.nodes.size(), 0);
  for (const Node& node : graph.nodes)
    for (const int input : node.inputs) ++readers[static_cast<size_t>(input)];
  return readers;
}

std::vector<std::vector<int>> readers_of(const Graph& graph) {
  std::vector<std::vector<int>> readers(graph.nodes.size());
  for (const int output : graph.outputs) readers[static_cast<size_t>(output)].push_back(kUser);
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    for (const int input : graph.nodes[n].inputs) readers[static_cast<size_t>(input)].push_back(static_cast<int>(n));
  return readers;
}

std::vector<int> last_readers(const Graph& graph) {
  std::vector<int> last(graph.nodes.size(), -1);
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    for (const int input : graph.nodes[n].inputs) last[static_cast<size_t>(input)] = static_cast<int>(n);
  for (const int output : graph.outputs) last[static_cast<size_t>(output)] = static_cast<int>(graph.nodes.size());
  return last;
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

bool has_batch_norm(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [](const Node& node) { return node.op == Op::batch_norm; });
}

std::vector<ParameterSpec> parameters(const Graph& graph) {
  std::vector<ParameterSpec> specs;
  for (const Node& node : graph.nodes) {
    if (has_weight(node.op)) append_weight(graph, node, specs);
    if (node.op == Op::batch_norm) append_batch_norm(node.name, node.shape.c, specs);
    if (node.op == Op::prelu) specs.push_back({node.name + ".weight", {node.groups}, ParameterSpec::Kind::slope});
    if (node.op == Op::lookup && node.groups > 1) {  // positive, not trained and at first 1, as a variance is
      for (const char* scale : {".input_scale", ".output_scale"})
        specs.push_back({node.name + scale, {node.groups}, ParameterSpec::Kind::bn_var});
    }
    if (!node.batch_norm.empty()) append_batch_norm(node.batch_norm, node.shape.c, specs);
  }
  return specs;
}

// Shape inference, which is also the check of a float graph.
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

/// Checks the attributes that no shape depends on.
void check_parameters(const Node& node) {
  if (!(node.dropout >= 0.0f && node.dropout < 1.0f))
    fail(node, fmt::format("dropout {} is not in [0, 1)", node.dropout));
  if (node.op == Op::batch_norm && !(node.epsilon > 0 && node.epsilon <= 1))
    fail(node, fmt::format("epsilon {} is not in (0, 1]", node.epsilon));
  if (!(node.function.slope >= 0.0f && node.function.slope < 1.0f))
    fail(node, fmt::format("slope {} is not in [0, 1)", node.function.slope));
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
    if (has_weight(node.op) || node.op == Op::matmul) {  // both sum over the channels of a group
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

std::optional<FunctionKind> find_function(std::string_view name) {
  for (const Named<FunctionKind>& row : kFunctions) {
    if (row.name == name) return row.value;
  }
  return std::nullopt;
}

std::string function_text(const Function& function) {
  const std::string name(name_in(kFunctions, function.kind));
  return function.kind == FunctionKind::leaky_relu ? fmt::format("{} {}", name, function.slope) : name;
}

double evaluate(const Function& function, double x) {
  const auto hard_sigmoid = [](double v) { return std::clamp(v + 3, 0.0, 6.0) / 6; };
  const auto softplus = [](double v) { return std::max(v, 0.0) + std::log1p(std::exp(-std::fabs(v))); };
  switch (function.kind) {
    case FunctionKind::silu:
      return x / (1 + std::exp(-x));
    case FunctionKind::hard_swish:
      return x * hard_sigmoid(x);
    case FunctionKind::hard_sigmoid:
      return hard_sigmoid(x);
    case FunctionKind::sigmoid:
      return 1 / (1 + std::exp(-x));
    case FunctionKind::tanh:
      return std::tanh(x);
    case FunctionKind::gelu:
      return x / 2 * (1 + std::erf(x / std::numbers::sqrt2));
    case FunctionKind::leaky_relu:
      return x < 0 ? x * static_cast<double>(function.slope) : x;
    case FunctionKind::mish:
      return x * std::tanh(softplus(x));
    case FunctionKind::softplus:
      return softplus(x);
    case FunctionKind::elu:
      return x < 0 ? std::expm1(x) : x;
  }
  return x;
}

bool never_negative(FunctionKind function) {
  return function == FunctionKind::sigmoid || function == FunctionKind::hard_sigmoid ||
         function == FunctionKind::softplus;
}

}  // namespace octet
