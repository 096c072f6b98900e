#include <algorithm>
#include <utility>

#include "src/common/error.h"
#include "src/quant/fuse.h"

namespace octet {
namespace {

void check_spec(const QuantSpec& spec) {
  for (const auto& [key, bits] :
       {std::pair{"activation_bits", spec.activation_bits}, {"weight_bits", spec.weight_bits}}) {
    if (bits < 2 || bits > 8) {
      throw usage_error("quant." + std::string(key) + ": " + std::to_string(bits) + " is outside 2..8");
    }
  }
}

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
  const Node& last = graph.nodes.back();
  const bool plain = last.op == Op::linear || last.op == Op::conv2d || last.op == Op::global_avg_pool;
  if (!plain || last.activation != Activation::none || last.shape.h != 1 || last.shape.w != 1) {
    throw usage_error("prepare: the last node '" + last.name + "' (" + std::string(op_name(last.op)) +
                      ") cannot give logits: it must be a linear, a conv2d or a global_avg_pool with 1x1 output and "
                      "without an activation after it");
  }
}

bool is_nonnegative(const Node& node, const std::vector<bool>& known) {
  if (node.activation != Activation::none) return true;
  switch (node.op) {
    case Op::relu:
    case Op::relu6:
      return true;
    case Op::add:
    case Op::concat:
    case Op::max_pool:
    case Op::avg_pool:
    case Op::global_avg_pool:
    case Op::flatten:
    case Op::subsample_pad:
      return std::all_of(node.inputs.begin(), node.inputs.end(), [&](int input) { return known[input]; });
    default:
      return false;
  }
}

}  // namespace

Prepared prepare(Graph fused, const QuantSpec& spec) {
  check_spec(spec);
  check_nodes(fused);
  Prepared result;
  result.spec = spec;
  const int codes = 1 << spec.activation_bits;
  for (int n = 0; n < static_cast<int>(fused.nodes.size()); ++n) {
    const Node& node = fused.nodes[n];
    const bool shares = node.op == Op::max_pool || node.op == Op::flatten || node.op == Op::subsample_pad;
    result.root.push_back(shares ? result.root[node.inputs[0]] : n);
    result.nonnegative.push_back(is_nonnegative(node, result.nonnegative));
    if (shares) {
      result.range.push_back(result.range[node.inputs[0]]);
      result.affine.push_back(result.affine[node.inputs[0]]);
      continue;
    }
    const bool is_unsigned = spec.activation == ActivationScheme::affine_u8 ||
                             (spec.activation == ActivationScheme::unsigned_u8 && result.nonnegative[n]);
    QParams range;
    range.quant_min = is_unsigned ? 0 : -codes / 2;
    range.quant_max = is_unsigned ? codes - 1 : codes / 2 - 1;
    result.range.push_back(range);
    result.affine.push_back(spec.activation == ActivationScheme::affine_u8);
  }
  result.graph = std::move(fused);
  return result;
}

}  // namespace octet
