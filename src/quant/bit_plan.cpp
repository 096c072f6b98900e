// SPDX-License-Identifier: Apache-2.0
#include "src/quant/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "src/base/error.h"
#include "src/base/names.h"
#include "src/net/op_traits.h"

namespace octet {

std::string nearest_names(std::string_view glob, std::vector<std::string_view> names, size_t count) {
  std::vector<std::pair<size_t, std::string_view>> by_distance;
  for (const std::string_view name : names) by_distance.emplace_back(glob_distance(glob, name), name);
  std::stable_sort(by_distance.begin(), by_distance.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string text;
  for (size_t i = 0; i < std::min(count, by_distance.size()); ++i) {
    text += (text.empty() ? "" : ", ") + std::string(by_distance[i].second);
  }
  return text;
}

namespace {

void check_bits(const std::string& key, int bits) {
  if (bits < 2 || bits > 8) throw usage_error(fmt::format("{}: {} is outside 2..8", key, bits));
}

void check_spec(const QuantSpec& spec) {
  check_bits("quant.activation_bits", spec.activation_bits);
  check_bits("quant.weight_bits", spec.weight_bits);
  check_bits("quant.input_bits", spec.input_bits);
  check_bits("quant.first_layer_bits", spec.first_layer_bits);
  check_bits("quant.last_layer_bits", spec.last_layer_bits);
  if (spec.residual_bits != 0) check_bits("quant.residual_bits", spec.residual_bits);
  for (const LayerBits& layer : spec.layers) {
    const std::string key = "quant.layers, '" + layer.match + "': ";
    if (layer.weight_bits != 0) check_bits(key + "weight_bits", layer.weight_bits);
    if (layer.activation_bits != 0) check_bits(key + "activation_bits", layer.activation_bits);
  }
}

/// The bits of an edge.
struct Edge {
  int bits = 0;          ///< of the codes that convolutions read
  bool by_name = false;  ///< a rule other than activation_bits set them
  int stored = 0;        ///< of the codes that are written: `bits`, or more for the sake of an add and the like
};

/// Inserts requantize nodes in front of layers that read fewer bits than the edge they read has.
class Rewriter {
 public:
  Rewriter(const Graph& graph, const std::vector<int>& root, const std::vector<Edge>& edges)
      : graph_(graph),
        root_(root),
        edges_(edges),
        floats_(float_outputs(graph)),
        rewired_(graph.nodes.size()),
        needed_(graph.nodes.size()) {
    for (int n = 0; n < size(); ++n) {
      const int reader = narrow_reader(n);
      if (reader < 0) continue;
      rewired_[reader] = true;
      needed_[graph.nodes[reader].inputs[0]] = true;
    }
    for (const Node& node : graph.nodes) names_.insert(node.name);
  }

  PlannedGraph run(const std::vector<int>& weight_bits) {
    PlannedGraph result;
    result.graph.name = graph_.name;
    std::vector<int> place(graph_.nodes.size()), narrow(graph_.nodes.size());
    const auto push = [&](Node node, int weight, int activation) {
      result.graph.nodes.push_back(std::move(node));
      result.bits.weight_bits.push_back(weight);
      result.bits.activation_bits.push_back(activation);
      return static_cast<int>(result.graph.nodes.size()) - 1;
    };
    for (int n = 0; n < size(); ++n) {
      Node node = graph_.nodes[n];
      for (size_t i = 0; i < node.inputs.size(); ++i)
        node.inputs[i] = (i == 0 && rewired_[n] ? narrow : place)[node.inputs[i]];
      const bool shares = passes_codes_on(node.op);
      const int bits = shares ? result.bits.activation_bits[node.inputs[0]] : floats_[n] ? 0 : edges_[n].stored;
      place[n] = push(node, weight_bits[n], bits);
      if (!needed_[n]) continue;
      Node requantize{.name = free_name(node.name + ".requantize"), .op = Op::requantize, .inputs = {place[n]}};
      narrow[n] = push(std::move(requantize), 0, edges_[root_[n]].bits);
    }
    for (const int output : graph_.outputs) result.graph.outputs.push_back(place[output]);
    infer_shapes(result.graph);
    return result;
  }

 private:
  int size() const { return static_cast<int>(graph_.nodes.size()); }

  /// Returns the node whose first input must be narrowed for layer n, or -1: n itself, or the flatten before it if that
  /// flattens more than one pixel: convert() permutes the columns of a linear directly behind such a flatten.
  int narrow_reader(int n) const {
    if (!has_weight(graph_.nodes[n].op)) return -1;
    const Node& from = graph_.nodes[graph_.nodes[n].inputs[0]];
    const bool moves = from.op == Op::flatten && from.shape != graph_.nodes[from.inputs[0]].shape;
    const Edge& edge = edges_[root_[graph_.nodes[n].inputs[0]]];
    if (edge.stored <= edge.bits) return -1;
    return moves ? graph_.nodes[n].inputs[0] : n;
  }

  std::string free_name(std::string name) {
    while (!names_.insert(name).second) name += "_";
    return name;
  }

  const Graph& graph_;
  const std::vector<int>& root_;
  const std::vector<Edge>& edges_;
  const std::vector<bool> floats_;
  std::vector<bool> rewired_, needed_;
  std::set<std::string> names_;
};

/// Applies the rules of plan_bits() in their order.
class Planner {
 public:
  Planner(const Graph& graph, const QuantSpec& spec)
      : graph_(graph),
        spec_(spec),
        root_(edge_roots(graph)),
        floats_(float_outputs(graph)),
        edges_(graph.nodes.size(), {spec.activation_bits}) {
    for (const Node& node : graph.nodes) weight_bits_.push_back(has_weight(node.op) ? spec.weight_bits : 0);
  }

  PlannedGraph run() {
    plan_logits();
    plan_input();
    for (const LayerBits& layer : spec_.layers) plan_layer(layer);
    plan_residuals();
    return Rewriter(graph_, root_, edges_).run(weight_bits_);
  }

 private:
  int size() const { return static_cast<int>(graph_.nodes.size()); }
  bool writes_codes(int n) const { return root_[n] == n && !floats_[n]; }
  void set_edge(int n, int bits) { edges_[root_[n]] = {bits, true}; }

  void plan_logits() {
    std::vector<bool> reaches(graph_.nodes.size());  // whether it reaches an output through no other weight
    for (const int output : graph_.outputs) reaches[output] = true;
    for (int n = size() - 1; n > 0; --n) {
      if (!reaches[n]) continue;
      const Node& node = graph_.nodes[n];
      if (!floats_[n]) set_edge(n, spec_.last_layer_bits);
      const bool weighted = has_weight(node.op);
      if (weighted) {
        weight_bits_[n] = spec_.last_layer_bits;
        set_read(node.inputs[0], spec_.last_layer_bits);
      }
      for (size_t i = weighted ? 1 : 0; i < node.inputs.size(); ++i) reaches[node.inputs[i]] = true;  // 1: the residual
    }
  }

  /// Sets the bits of the edge that node n writes and, if n is a pool or the like, of the edge it reads.
  void set_read(int n, int bits) {
    set_edge(n, bits);
    const Node& node = graph_.nodes[n];
    if (!has_weight(node.op) && node.inputs.size() == 1) set_read(node.inputs[0], bits);
  }

  void plan_input() {
    std::vector<bool> before(graph_.nodes.size());  // whether no weight comes before its output
    for (int n = 0; n < size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (has_weight(node.op)) {
        if (before[node.inputs[0]]) weight_bits_[n] = spec_.first_layer_bits;
        continue;
      }
      before[n] = std::all_of(node.inputs.begin(), node.inputs.end(), [&](int input) { return before[input]; });
      if (before[n] && !floats_[n]) set_edge(n, spec_.input_bits);
    }
  }

  void plan_layer(const LayerBits& layer) {
    std::vector<int> matches;
    for (int n = 0; n < size(); ++n) {
      if (glob_distance(layer.match, graph_.nodes[n].name) == 0) matches.push_back(n);
    }
    if (matches.empty()) {
      refuse(layer, "names no layer", [](int) { return true; });
    }
    const auto apply = [&](int bits, const char* key, const char* lacks, const std::function<bool(int)>& fits,
                           const std::function<void(int)>& set) {
      if (bits == 0) return;
      if (std::none_of(matches.begin(), matches.end(), fits)) {
        refuse(layer, fmt::format("{} {}: names only layers without {}", key, bits, lacks), fits);
      }
      for (const int n : matches) {
        if (fits(n)) set(n);
      }
    };
    apply(
        layer.weight_bits, "weight_bits", "weights", [&](int n) { return has_weight(graph_.nodes[n].op); },
        [&](int n) { weight_bits_[n] = layer.weight_bits; });
    apply(
        layer.activation_bits, "activation_bits", "codes of their own (pools and flatten keep those they read)",
        [&](int n) { return writes_codes(n); }, [&](int n) { set_edge(n, layer.activation_bits); });
  }

  [[noreturn]] void refuse(const LayerBits& layer, const std::string& what,
                           const std::function<bool(int)>& fits) const {
    std::vector<std::string_view> names;
    for (int n = 0; n < size(); ++n) {
      if (fits(n)) names.push_back(graph_.nodes[n].name);
    }
    throw usage_error(fmt::format("quant.layers, '{}': {} of {}; nearest: {}", layer.match, what, graph_.name,
                                  nearest_names(layer.match, names)));
  }

  void plan_residuals() {
    for (Edge& edge : edges_) edge.stored = edge.bits;
    if (spec_.residual_bits == 0) return;
    const auto multiplies_nothing = [](const Node& node, size_t input) {
      return has_weight(node.op) ? input == 1 : !passes_codes_on(node.op) && node.op != Op::matmul;
    };
    for (const Node& node : graph_.nodes) {
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (!multiplies_nothing(node, i)) continue;
        Edge& edge = edges_[root_[node.inputs[i]]];
        edge.stored = edge.by_name ? std::max(edge.bits, spec_.residual_bits) : spec_.residual_bits;
      }
    }
  }

  const Graph& graph_;
  const QuantSpec& spec_;
  const std::vector<int> root_;
  const std::vector<bool> floats_;
  std::vector<Edge> edges_;       ///< for each node; only those of roots are used
  std::vector<int> weight_bits_;  ///< for each node; 0: no weights
};

}  // namespace

WeightCodes weight_codes(int bits, WeightRange range) {
  const int highest = (1 << (bits - 1)) - 1;
  const bool full = range == WeightRange::full && bits < 8;
  return {static_cast<int8_t>(full ? -highest - 1 : -highest), static_cast<int8_t>(highest)};
}

std::vector<int> edge_roots(const Graph& graph) {
  std::vector<int> roots;
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    const Node& node = graph.nodes[n];
    roots.push_back(passes_codes_on(node.op) ? roots[node.inputs[0]] : n);
  }
  return roots;
}

std::vector<bool> float_outputs(const Graph& graph) {
  std::vector<bool> floats(graph.nodes.size());
  for (const int output : graph.outputs) {
    const Node& node = graph.nodes[output];
    floats[output] = can_give_floats(traits(node.op)) && !activates(node);
  }
  for (const Node& node : graph.nodes) {
    for (const int input : node.inputs) floats[input] = false;
  }
  return floats;
}

QuantSpec uniform_bits(int activation_bits, int weight_bits) {
  return {
      .activation_bits = activation_bits, .weight_bits = weight_bits, .layers = {{"*", weight_bits, activation_bits}}};
}

PlannedGraph plan_bits(const Graph& fused, const QuantSpec& spec) {
  check_spec(spec);
  return Planner(fused, spec).run();
}

}  // namespace octet
