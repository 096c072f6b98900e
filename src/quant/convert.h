// convert: a prepared graph, float parameters and calibrated qparams become the Int8Graph. No LibTorch.
#pragma once

#include <string>
#include <vector>

#include "src/graph/int8_graph.h"
#include "src/quant/float_params.h"
#include "src/quant/prepare.h"

namespace octet {

/// `edges[n]` are the qparams of node n's output (of its root for pass-through nodes; ignored for float outputs).
/// `scales[name]` are the weight scales a convolution or linear was trained with. Output is validated; a non-finite or
/// zero scale is an Error(promise) naming the node.
Int8Graph convert(const Prepared& prepared, const FloatParams& params, const std::vector<QParams>& edges,
                  const FloatParams& weight_scales, const Preprocessing& preprocessing,
                  const std::vector<std::string>& class_names);

/// An Int8Graph of `graph` with random weights and plausible qparams: for benchmarks and tests. Activations neither
/// vanish nor saturate everywhere.
Int8Graph random_int8_graph(const Graph& graph, const QuantSpec& spec, uint64_t seed);

}  // namespace octet
