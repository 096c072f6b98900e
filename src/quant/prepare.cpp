#include <algorithm>
#include <utility>

#include "src/common/error.h"
#include "src/graph/op_traits.h"
#include "src/quant/prepare.h"
#include "src/quant/sparse_layers.h"

namespace octet {
namespace {

/// What cannot become int8 is refused here, before anything is calibrated or trained.
void check_nodes(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (node.op == Op::batch_norm || node.op == Op::dropout) {
      throw usage_error("prepare: node '" + node.name + "' is a " + std::string(op_name(node.op)) +
                        "; call fuse first");
    }
    for (const int input : node.inputs) {
      const Node& from = graph.nodes[input];
      // Codes stay in HWC memory order; only the columns of a linear's weight can follow that.
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

/// Scale and, for affine_u8, zero point are to be calibrated. Float outputs have no codes.
QParams code_range(ActivationScheme scheme, int bits, bool nonnegative) {
  if (bits == 0) return {};
  const int codes = 1 << bits;
  const bool is_unsigned =
      scheme == ActivationScheme::affine_u8 || (scheme == ActivationScheme::unsigned_u8 && nonnegative);
  return {.quant_min = is_unsigned ? 0 : -codes / 2, .quant_max = is_unsigned ? codes - 1 : codes / 2 - 1};
}

/// By node of the planned graph.
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
