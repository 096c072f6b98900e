// SPDX-License-Identifier: Apache-2.0
#include "tests/quant/quantized_network.h"

#include <algorithm>

#include "src/quant/calibrate.h"
#include "src/quant/convert.h"
#include "src/quant/plan.h"
#include "src/quant/weight_scales.h"

namespace octet::testing {

Preprocessing preprocessing_of(const Graph& graph) {
  const size_t channels = static_cast<size_t>(graph.nodes[0].shape.c);
  return {.mean = std::vector<float>(channels, 0.45f), .std = std::vector<float>(channels, 0.22f)};
}

QuantizedNetwork::QuantizedNetwork(const Graph& graph, const QuantSpec& spec, uint64_t seed)
    : written(graph), prepared(prepare(fuse(graph), spec)) {
  const Graph& fused = prepared.graph;
  params = random_params(fused, seed);
  pixels = random_pixels(fused.nodes[0].shape, seed + 1);
  const auto values = walk_float(fused, params, image());
  for (int n = 0; n < static_cast<int>(fused.nodes.size()); ++n) {
    const Node& node = fused.nodes[n];
    const auto [lo, hi] = std::minmax_element(values[n].begin(), values[n].end());
    edges.push_back(prepared.root[n] == n ? choose_qparams(static_cast<float>(*lo), static_cast<float>(*hi),
                                                           prepared.range[n], prepared.affine[n])
                                          : edges[prepared.root[n]]);
    if (node.op != Op::conv2d && node.op != Op::linear) continue;
    const std::vector<float>& weight = params.at(node.name + ".weight");
    scales[node.name] =
        weight_scales(weight.data(), node.out_channels, static_cast<long>(weight.size()) / node.out_channels,
                      {prepared.weight_codes(n), spec.weight_granularity});
  }
}

Image QuantizedNetwork::image() const {
  return normalized(pixels, prepared.graph.nodes[0].shape, preprocessing_of(prepared.graph));
}

Int8Graph QuantizedNetwork::converted() const {
  return convert(prepared, params, edges, scales, preprocessing_of(prepared.graph), {});
}

}  // namespace octet::testing
