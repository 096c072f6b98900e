// SPDX-License-Identifier: Apache-2.0
#include "src/quant/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/net/op_traits.h"

namespace octet {

WeightRows weight_rows(const Graph& graph, int n) {
  const Node& node = graph.nodes[n];
  if (node.op == Op::conv2d)
    return {graph.nodes[node.inputs[0]].shape.c / node.groups,
            static_cast<long>(node.window.kernel_h) * node.window.kernel_w};
  int from = node.inputs[0];
  while (graph.nodes[from].op == Op::flatten) from = graph.nodes[from].inputs[0];
  const Shape& image = graph.nodes[from].shape;
  return {image.c, static_cast<long>(image.h) * image.w};
}

std::vector<std::string> dense_reasons(const Graph& fused) {
  std::vector<std::string> reasons(fused.nodes.size());
  std::vector<bool> from_input(fused.nodes.size());  // whether it is the input, or made from it without weights
  for (int n = 0; n < static_cast<int>(fused.nodes.size()); ++n) {
    const Node& node = fused.nodes[n];
    if (!has_weight(node.op)) {
      from_input[n] = std::all_of(node.inputs.begin(), node.inputs.end(), [&](int input) { return from_input[input]; });
      continue;
    }
    const long inputs = weight_rows(fused, n).inputs;
    if (from_input[node.inputs[0]]) {
      reasons[n] = "reads the picture";
    } else if (inputs == 1) {
      reasons[n] = "depthwise";
    } else if (inputs % 4 != 0) {
      reasons[n] = fmt::format("{} input channels, no multiple of four", inputs);
    }
  }
  return reasons;
}

namespace {

/// Throws Error(usage) for nodes that cannot become int8, before anything is calibrated or trained.
void check_nodes(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (node.op == Op::batch_norm || node.op == Op::dropout) {
      throw usage_error("prepare: node '" + node.name + "' is a " + std::string(op_name(node.op)) +
                        "; call fuse first");
    }
    for (const int input : node.inputs) {
      const Node& from = graph.nodes[input];
      // The codes of an image stay in HWC order; only a linear, whose columns can be permuted, reads them flattened.
      if (from.op == Op::flatten && from.shape != graph.nodes[from.inputs[0]].shape && node.op != Op::linear) {
        throw usage_error("prepare: '" + node.name + "' (" + std::string(op_name(node.op)) + ") reads the flatten '" +
                          from.name + "' of more than one pixel; only a linear can");
      }
    }
  }
}

bool is_nonnegative(const Node& node, const std::vector<bool>& known) {
  if (activates(node) || node.op == Op::softmax) return true;
  if (node.op == Op::lookup && never_negative(node.curve.function)) return true;
  return traits(node.op).keeps_sign &&
         std::all_of(node.inputs.begin(), node.inputs.end(), [&](int input) { return known[input]; });
}

/// Returns the codes of an edge of so many bits; 0 bits are floats, which have none. Scales are not known yet.
QParams code_range(ActivationScheme scheme, int bits, bool nonnegative) {
  if (bits == 0) return {};
  const int codes = 1 << bits;
  const bool is_unsigned =
      scheme == ActivationScheme::affine_u8 || (scheme == ActivationScheme::unsigned_u8 && nonnegative);
  return {.quant_min = is_unsigned ? 0 : -codes / 2, .quant_max = is_unsigned ? codes - 1 : codes / 2 - 1};
}

/// Returns for each node whether its weights are 2:4 sparse.
std::vector<bool> sparse_nodes(const Graph& graph, Sparsity sparsity) {
  std::vector<bool> sparse(graph.nodes.size());
  if (sparsity == Sparsity::none) return sparse;
  const std::vector<std::string> reasons = dense_reasons(graph);
  for (size_t n = 0; n < sparse.size(); ++n) sparse[n] = has_weight(graph.nodes[n].op) && reasons[n].empty();
  if (std::find(sparse.begin(), sparse.end(), true) == sparse.end())
    throw usage_error("quant.sparsity: 2:4 fits no layer of " + graph.name +
                      ": beside the first layer none has a multiple of four input channels; set none");
  return sparse;
}

}  // namespace

Prepared prepare(const Graph& fused, const QuantSpec& spec) {
  check_nodes(fused);
  Prepared result;
  result.spec = spec;
  PlannedGraph plan = plan_bits(fused, spec);
  result.graph = std::move(plan.graph);
  result.bits = std::move(plan.bits);
  result.root = edge_roots(result.graph);
  result.floats = float_outputs(result.graph);
  result.sparse = sparse_nodes(result.graph, spec.sparsity);
  for (int n = 0; n < static_cast<int>(result.graph.nodes.size()); ++n) {
    result.nonnegative.push_back(is_nonnegative(result.graph.nodes[n], result.nonnegative));
    const int root = result.root[n];
    result.range.push_back(root != n
                               ? result.range[root]
                               : code_range(spec.activation, result.bits.activation_bits[n], result.nonnegative[n]));
    result.affine.push_back(spec.activation == ActivationScheme::affine_u8);
  }
  return result;
}

}  // namespace octet
