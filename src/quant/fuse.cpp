// SPDX-License-Identifier: Apache-2.0
#include "src/quant/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "src/base/error.h"
#include "src/net/op_traits.h"

namespace octet {
namespace {

/// Walks the source once, in order. Each source node either opens a merged node or joins an earlier one; a merged node
/// stands at the place of its last member, so that every input of every member comes before it.
class Fuser {
 public:
  explicit Fuser(Graph source) : source_(std::move(source)), value_(source_.nodes.size()) { count_uses(); }

  Graph run() {
    for (int n = 0; n < static_cast<int>(source_.nodes.size()); ++n) visit(n);
    return in_order();
  }

 private:
  /// Returns whether the node is dropped: dropout, and an output that flattens one pixel (the logits are then
  /// [classes, 1, 1]).
  bool is_identity(int n) const {
    const Node& node = source_.nodes[n];
    if (node.op == Op::dropout) return true;
    const bool output = std::find(source_.outputs.begin(), source_.outputs.end(), n) != source_.outputs.end();
    return output && node.op == Op::flatten && source_.nodes[node.inputs[0]].shape == node.shape;
  }

  /// Returns the node that computes the output of node n: itself, or the one before nodes that are dropped.
  int computed_by(int n) const {
    while (is_identity(n)) n = source_.nodes[n].inputs[0];
    return n;
  }

  void count_uses() {
    uses_.assign(source_.nodes.size(), 0);
    for (int n = 0; n < static_cast<int>(source_.nodes.size()); ++n) {
      if (is_identity(n)) continue;
      for (const int input : source_.nodes[n].inputs) ++uses_[computed_by(input)];
    }
    for (const int output : source_.outputs) ++uses_[computed_by(output)];
    for (int n = 0; n < static_cast<int>(source_.nodes.size()); ++n) {
      if (uses_[n] == 0 && !is_identity(n))
        throw usage_error("fuse: nothing reads node '" + source_.nodes[n].name + "'");
    }
  }

  void visit(int n) {
    Node node = source_.nodes[n];
    for (int& input : node.inputs) input = value_[input];
    if (is_identity(n)) {
      value_[n] = node.inputs[0];
    } else if (node.op == Op::batch_norm) {
      join_batch_norm(n, node);
    } else if (!(node.op == Op::add && join_residual(n, node)) &&
               !((node.op == Op::relu || node.op == Op::relu6) && join_activation(n, node))) {
      value_[n] = static_cast<int>(merged_.size());
      merged_.push_back(std::move(node));
      last_member_.push_back(n);
    }
  }

  void join(int n, int target) {
    value_[n] = target;
    last_member_[target] = n;
  }

  bool has_one_use(int target) const { return uses_[last_member_[target]] == 1; }

  bool is_bare_convolution(int target) const {
    const Node& node = merged_[target];
    return node.op == Op::conv2d && node.activation == Activation::none && node.inputs.size() == 1;
  }

  void join_batch_norm(int n, const Node& node) {
    const int target = node.inputs[0];
    Node& producer = merged_[target];
    std::string why;
    if (!has_weight(producer.op)) {
      why = "is a " + std::string(op_name(producer.op));
    } else if (!has_one_use(target)) {
      why = "has other consumers";
    } else if (!producer.batch_norm.empty()) {
      why = "already has '" + producer.batch_norm + "'";
    } else if (producer.activation != Activation::none || producer.inputs.size() > 1) {
      why = "is followed by an add or activation";
    }
    if (!why.empty()) {
      throw usage_error("fuse: batch_norm '" + node.name + "' cannot be folded: its input '" + producer.name + "' " +
                        why + "; place it directly after a conv2d or linear that has no other consumer");
    }
    producer.batch_norm = node.name;
    producer.epsilon = node.epsilon;
    join(n, target);
  }

  /// Merges an add into the later of the convolutions that it reads; its other side becomes the residual input. Returns
  /// false if no convolution can take it.
  bool join_residual(int n, const Node& node) {
    int target = -1;
    for (const int side : node.inputs) {
      if (is_bare_convolution(side) && has_one_use(side) && (target < 0 || last_member_[side] > last_member_[target])) {
        target = side;
      }
    }
    if (target < 0) return false;
    merged_[target].inputs.push_back(node.inputs[0] == target ? node.inputs[1] : node.inputs[0]);
    merged_[target].activation = node.activation;
    join(n, target);
    return true;
  }

  /// Merges an activation into the node before it, or before operators that pass codes on, with which it commutes: the
  /// edge between then has no values that are cut off later. Returns false if that node cannot take it.
  bool join_activation(int n, const Node& node) {
    int target = node.inputs[0];
    while (passes_codes_on(merged_[target].op) && has_one_use(target)) target = merged_[target].inputs[0];
    Node& producer = merged_[target];
    if (!has_one_use(target) || passes_codes_on(producer.op) || producer.op == Op::input) return false;
    const bool six = node.op == Op::relu6;  // relu6 after relu or before it is relu6
    if (producer.op == Op::relu || producer.op == Op::relu6) {
      if (six) producer.op = Op::relu6;
    } else if (six || producer.activation == Activation::none) {
      producer.activation = six ? Activation::relu6 : Activation::relu;
    }
    join(n, node.inputs[0]);
    return true;
  }

  Graph in_order() const {
    std::vector<int> order(merged_.size()), place(merged_.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [this](int a, int b) { return last_member_[a] < last_member_[b]; });
    for (size_t i = 0; i < order.size(); ++i) place[order[i]] = static_cast<int>(i);
    Graph result;
    result.name = source_.name;
    for (const int merged : order) {
      result.nodes.push_back(merged_[merged]);
      for (int& input : result.nodes.back().inputs) input = place[input];
    }
    for (const int output : source_.outputs) {
      const int node = place[value_[output]];
      if (std::find(result.outputs.begin(), result.outputs.end(), node) != result.outputs.end()) {
        throw usage_error("fuse: output '" + source_.nodes[output].name + "' is another output once more");
      }
      result.outputs.push_back(node);
    }
    return result;
  }

  Graph source_;
  std::vector<int> uses_;         ///< source node -> how many nodes and outputs read it
  std::vector<int> value_;        ///< source node -> merged node that computes it
  std::vector<Node> merged_;      ///< inputs are indices of merged_
  std::vector<int> last_member_;  ///< merged node -> source node whose value it computes
};

}  // namespace

Graph fuse(const Graph& graph) {
  Graph checked = graph;
  infer_shapes(checked);
  Graph fused = Fuser(std::move(checked)).run();
  infer_shapes(fused);
  return fused;
}

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
      reasons[n] = "reads the image";
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
  if (node.op == Op::lookup && never_negative(node.function.kind)) return true;
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
