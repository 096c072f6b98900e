// Every constant of an int8 network derived a second time, from the float network as it was written, the trained
// weights and the scales.
#pragma once

#include <vector>

#include "src/eval/constants.h"
#include "src/graph/int8_graph.h"
#include "src/quant/float_params.h"
#include "src/quant/prepare.h"

namespace octet {

/// What was trained.
struct TrainedNetwork {
  const Graph& written;        ///< before fuse: epsilons, biases, functions and factors are read here
  const Prepared& prepared;    ///< which nodes run, where activations went, the bits of weights
  FloatParams params;          ///< weights of the float network as QAT left them, those of 2:4 sparse layers with zeros
  FloatParams weight_scales;   ///< by convolution or linear, one a channel
  std::vector<QParams> edges;  ///< by node of prepared.graph
  const Preprocessing& preprocessing;
};

/// Holds every multiplier, bias, table entry and weight code of `graph`, and the codes of its edges, against what
/// follows from `trained`: floats may differ by the roundings to float32 that they are made by, codes only where
/// float32 cannot tell on which side of a border a value lies. Throws Error(promise) when `graph` is of another
/// network.
DerivedConstants derive_constants(const TrainedNetwork& trained, const Int8Graph& graph);

}  // namespace octet
