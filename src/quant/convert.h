// SPDX-License-Identifier: Apache-2.0
// From a prepared graph, float parameters and calibrated scales to the Int8Graph that engines run. No LibTorch.
#pragma once

#include <string>
#include <vector>

#include "src/net/int8_graph.h"
#include "src/quant/node_constants.h"
#include "src/quant/plan.h"

namespace octet {

/// Converts a network. `edges[n]` are scale and zero point of node n's output; nodes that pass codes on use their
/// root's, and those of float outputs are ignored. `weight_scales[name]` are the scales that the weights of a
/// convolution or linear were trained with, one for each output channel. `preprocessing` and `class_names` go into the
/// result, which is validated. Throws Error(promise) naming the node for a scale that is not finite and positive, and
/// for codes that do not follow from prepared.spec.
Int8Graph convert(const Prepared& prepared, const FloatParams& params, const std::vector<QParams>& edges,
                  const FloatParams& weight_scales, const Preprocessing& preprocessing,
                  const std::vector<std::string>& class_names);

/// Changes the scales of a network that convert() made of `prepared` and the same weights: its nodes are made anew for
/// `edges`, but for the codes and scales of weights, which stay and take longest. params: as for convert(), of which
/// the weights of convolutions and linears may be missing.
void change_edges(Int8Graph& graph, const Prepared& prepared, const FloatParams& params,
                  const std::vector<QParams>& edges);

/// Fuses, prepares and converts `graph` with random weights and plausible scales, for benchmarks and tests: activations
/// neither vanish nor saturate everywhere.
Int8Graph random_int8_graph(const Graph& graph, const QuantSpec& spec, uint64_t seed);

}  // namespace octet
