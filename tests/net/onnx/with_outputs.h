// SPDX-License-Identifier: Apache-2.0
// A network of nine outputs: classes, codes that others read, classes of pixels, codes of one pixel, and codes that
// none reads: a function's, copies, pixels between others, and slopes.
#pragma once

#include "src/net/zoo.h"
#include "src/quant/convert.h"

namespace octet::test {

inline Int8Graph with_outputs(ActivationScheme scheme) {
  GraphBuilder builder("outputs", {3, 9, 9}, false);
  const int features = builder.conv("features", 0, {.out_channels = 8, .kernel = 3, .pad = 1, .bias = true});
  const int pixels = builder.conv("pixels", features, {.out_channels = 2, .bias = true});
  const int gate = builder.lookup(FunctionKind::sigmoid, "gate", features);
  const int up = builder.resize("up", features, 2);
  const int mean = builder.unary(Op::global_avg_pool, "mean", features);
  const int fc = builder.linear("fc", mean, 4);
  const int hidden = builder.linear("hidden", mean, 6);
  Graph graph = builder.finish();
  graph.nodes.push_back(
      {.name = "smooth", .op = Op::resize_bilinear, .inputs = {features}, .factor_h = 3, .factor_w = 2});
  const int smooth = static_cast<int>(graph.nodes.size()) - 1;
  graph.nodes.push_back({.name = "slopes", .op = Op::prelu, .inputs = {features}, .groups = 8});
  graph.nodes.push_back({.name = "one", .op = Op::prelu, .inputs = {hidden}});
  graph.nodes.push_back({.name = "row", .op = Op::prelu, .inputs = {smooth + 2}, .groups = 6});
  infer_shapes(graph);
  graph.outputs = {fc, features, pixels, mean, gate, up, smooth, smooth + 1, smooth + 3};
  QuantSpec spec;
  spec.activation = scheme;
  return random_int8_graph(graph, spec, 4);
}

}  // namespace octet::test
