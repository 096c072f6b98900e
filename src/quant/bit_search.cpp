// SPDX-License-Identifier: Apache-2.0
#include "src/quant/bit_search.h"

#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "src/net/op_traits.h"
#include "src/quant/plan.h"

namespace octet {
namespace {

/// Returns the bits that convolutions read: the wider codes that residual_bits give an add cost no multiplication.
BitPlan read_plan(const Graph& fused, QuantSpec spec) {
  spec.residual_bits = 0;
  return plan_bits(fused, spec).bits;
}

}  // namespace

std::vector<BitStep> bit_steps(const std::vector<BitChoice>& choices,
                               const std::function<double(const BitLevels&)>& cost) {
  BitStep now{.levels = BitLevels(choices.size(), 0)};
  now.cost = cost(now.levels);
  std::vector<BitStep> steps = {now};
  for (;;) {
    double best = std::numeric_limits<double>::infinity();
    BitStep next;
    for (size_t c = 0; c < choices.size(); ++c) {
      for (size_t level = now.levels[c] + 1; level < choices[c].noise.size(); ++level) {
        BitStep tried = now;
        tried.levels[c] = static_cast<int>(level);
        tried.noise += choices[c].noise[level] - choices[c].noise[now.levels[c]];
        tried.cost = cost(tried.levels);
        const double saved = now.cost - tried.cost, ratio = (tried.noise - now.noise) / saved;
        if (saved <= 0 || ratio >= best) continue;
        best = ratio;
        next = std::move(tried);
      }
    }
    if (next.levels.empty()) return steps;
    now = next;
    steps.push_back(std::move(next));
  }
}

size_t last_that_keeps(size_t kept, size_t lost, const std::function<bool(size_t step)>& keeps) {
  while (lost - kept > 1) {
    const size_t middle = kept + (lost - kept) / 2;
    (keeps(middle) ? kept : lost) = middle;
  }
  return kept;
}

std::vector<BitChoice> bit_choices(const Graph& fused, const QuantSpec& spec, bool edges) {
  const auto with_general_bits = [&](int bits) {
    QuantSpec general = spec;
    general.weight_bits = general.activation_bits = bits;
    return read_plan(fused, general);
  };
  const BitPlan two = with_general_bits(2), three = with_general_bits(3);  // what differs has the general bits
  const std::vector<int> roots = edge_roots(fused);
  std::vector<BitChoice> choices;
  for (int n = 0; n < static_cast<int>(fused.nodes.size()); ++n) {
    if (two.weight_bits[n] != three.weight_bits[n]) choices.push_back({.node = n, .what = BitChoice::What::weights});
    if (edges && roots[n] == n && two.activation_bits[n] != three.activation_bits[n])
      choices.push_back({.node = n, .what = BitChoice::What::edge});
  }
  return choices;
}

std::vector<LayerBits> layers_of(const Graph& fused, const std::vector<BitChoice>& choices, const BitLevels& levels,
                                 const std::vector<int>& candidates) {
  std::map<int, LayerBits> by_node;
  for (size_t c = 0; c < choices.size(); ++c) {
    if (levels[c] == 0) continue;
    LayerBits& layer = by_node[choices[c].node];
    layer.match = fused.nodes[choices[c].node].name;
    (choices[c].what == BitChoice::What::weights ? layer.weight_bits : layer.activation_bits) = candidates[levels[c]];
  }
  std::vector<LayerBits> layers;
  for (auto& [node, layer] : by_node) layers.push_back(std::move(layer));
  return layers;
}

BitCosts::BitCosts(const Graph& fused, const QuantSpec& spec, const std::vector<BitChoice>& choices,
                   std::vector<int> candidates)
    : candidates_(std::move(candidates)) {
  const BitPlan plan = read_plan(fused, spec);
  const std::vector<int> roots = edge_roots(fused);
  const auto choice_of = [&](int node, BitChoice::What what) {
    for (size_t c = 0; c < choices.size(); ++c)
      if (choices[c].node == node && choices[c].what == what) return static_cast<int>(c);
    return -1;
  };
  std::map<std::string, double> weights;
  for (const ParameterSpec& p : parameters(fused)) {
    weights[p.name] = std::accumulate(p.shape.begin(), p.shape.end(), 1.0, std::multiplies<>());
  }
  for (int n = 0; n < static_cast<int>(fused.nodes.size()); ++n) {
    const Node& node = fused.nodes[n];
    if (!has_weight(node.op)) continue;
    const int edge = roots[node.inputs[0]];
    const double count = weights.at(node.name + ".weight");
    layers_.push_back({.weights = count,
                       .multiply_adds = count * node.shape.h * node.shape.w,  // each once an output pixel
                       .weight_bits = plan.weight_bits[n],
                       .code_bits = plan.activation_bits[edge],
                       .weight_choice = choice_of(n, BitChoice::What::weights),
                       .code_choice = choice_of(edge, BitChoice::What::edge)});
  }
}

BitCost BitCosts::operator()(const BitLevels& levels) const {
  BitCost cost;
  double weights = 0;
  for (const Layer& layer : layers_) {
    const auto bits = [&](int choice, int otherwise) {
      return choice < 0 ? otherwise : candidates_[static_cast<size_t>(levels[static_cast<size_t>(choice)])];
    };
    const double of_weight = bits(layer.weight_choice, layer.weight_bits);
    weights += layer.weights;
    cost.weight_bytes += layer.weights * of_weight / 8;
    cost.bit_operations += layer.multiply_adds * of_weight * bits(layer.code_choice, layer.code_bits);
  }
  cost.weight_bits = 8 * cost.weight_bytes / weights;
  return cost;
}

}  // namespace octet
