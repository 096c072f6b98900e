// SPDX-License-Identifier: Apache-2.0
#include "src/train/repair/reconstruct.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "src/base/error.h"
#include "src/train/qat/folded_batch_norm.h"

namespace octet {

std::vector<RoundingUnit> rounding_units(const Graph& graph, bool blocks) {
  if (blocks && graph.outputs.size() != 1)
    throw usage_error(
        fmt::format("calibrate.rounding: a block's error is seen where it ends, and this network ends in "
                    "{} outputs; take adaround",
                    graph.outputs.size()));
  std::vector<int> ends = cut_points(graph);
  ends.push_back(blocks ? graph.outputs.front() : static_cast<int>(graph.nodes.size()) - 1);
  std::vector<RoundingUnit> units;
  int first = 0;
  for (const int last : ends) {
    RoundingUnit unit{.part = {first, last}, .layers = {}};
    for (int n = first + 1; n <= last; ++n) {
      if (!has_weight(graph.nodes[n].op)) continue;
      unit.layers.push_back(n);
      if (!blocks) units.push_back({unit.part, {n}});
    }
    if (blocks && !unit.layers.empty()) units.push_back(std::move(unit));
    first = last;
  }
  return units;
}

Piece lone_layer(const Graph& graph, int layer, const Weights& floats) {
  const int source = graph.nodes[layer].inputs[0];
  Node input{.name = "input", .op = Op::input, .shape = graph.nodes[source].shape}, node = graph.nodes[layer];
  if (node.inputs.size() > 1) node.activation = Activation::none;
  node.inputs = {0};
  auto alone = std::make_shared<Graph>();
  alone->nodes = {input, node};
  alone->outputs = {1};
  const auto quantized = [alone, &floats, folded = FoldedLayer(node, floats)](const at::Tensor& x,
                                                                              const std::vector<at::Tensor>& weights) {
    WalkHooks hooks;
    hooks.parameters = [&](int, const LayerParameters&) { return folded.with(weights[0]); };
    return walk(*alone, floats, x, {}, hooks);
  };
  const auto wanted = [quantized, own = floats.at(node.name + ".weight")](const at::Tensor& x) {
    return quantized(x, {own});
  };
  return {.source = source, .quantized = quantized, .wanted = wanted, .channels = node.shape.c};
}

Piece block(QuantizedModel& model, const RoundingUnit& unit, const Weights& floats) {
  const Graph& graph = model.prepared().graph;
  const GraphPart part = unit.part;
  std::vector<int> place(graph.nodes.size(), -1);  // among the unit's weights
  std::vector<FoldedLayer> folded;
  for (const int n : unit.layers) {
    place[n] = static_cast<int>(folded.size());
    folded.emplace_back(graph.nodes[n], floats);
  }
  const auto layers = [place, folded](const std::vector<at::Tensor>& weights) {
    WalkHooks hooks;
    hooks.parameters = [&](int n, const LayerParameters&) { return folded[place[n]].with(weights[place[n]]); };
    return hooks;
  };
  const WalkHooks deployed = model.quantizing_hooks({});
  const auto quantized = [&graph, &floats, part, layers, deployed](const at::Tensor& x,
                                                                   const std::vector<at::Tensor>& weights) {
    WalkHooks hooks = layers(weights);
    if (deployed.finish) {
      hooks.finish = [&](int n, const Unfinished& y) {
        return n == part.last ? finished(y, graph.nodes[n].activation) : deployed.finish(n, y);
      };
    }
    hooks.output = [&](int n, at::Tensor y) { return n == part.last ? y : deployed.output(n, std::move(y)); };
    return walk_part(graph, floats, part, x, {}, hooks);
  };
  // On a GPU `finish` quantizes, and activating again changes nothing; on the CPU `output` quantizes.
  const auto dropping = [&model, &graph, &floats, part, layers, deployed](
                            const at::Tensor& x, const std::vector<at::Tensor>& weights, const Drop& drop) {
    WalkHooks hooks = layers(weights);
    hooks.output = [&](int n, at::Tensor y) {
      if (n == part.first || n == part.last || !model.prepared().has_edge(n)) return y;
      const at::Tensor plain = y;
      return drop(deployed.output(n, deployed.finish ? deployed.finish(n, {.value = plain}) : plain), plain);
    };
    return walk_part(graph, floats, part, x, {}, hooks);
  };
  const auto wanted = [&graph, &floats, part](const at::Tensor& x) { return walk_part(graph, floats, part, x, {}); };
  return {.source = part.first,
          .quantized = quantized,
          .wanted = wanted,
          .dropping = dropping,
          .channels = graph.nodes[part.last].shape.c};
}

}  // namespace octet
