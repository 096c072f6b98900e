// SPDX-License-Identifier: Apache-2.0
// Every constant of an int8 network derived a second time, from the float network as it was written, the trained
// weights and the scales, and compared with the network's own. Engines and QAT graph take their constants from the same
// functions of src/quant, so equal codes say nothing about those.
#pragma once

#include <string>
#include <vector>

#include "src/net/int8_graph.h"
#include "src/quant/node_constants.h"
#include "src/quant/plan.h"

namespace octet {

/// A constant of the int8 network that does not follow from the trained weights and scales.
struct WrongConstant {
  std::string node;
  std::string what;          ///< "multiplier", "bias", "table entry" ...
  long index = -1;           ///< its place in the checkpoint's list of the node; -1: the node has one
  double stored = 0;         ///< in the int8 network
  double expected = 0;       ///< by the second derivation
  std::string text() const;  ///< "'conv1': bias 3 is 0.5, the trained weights give 0.25"
};

/// The outcome. All counts are of constants that were compared, right or wrong.
struct DerivedConstants {
  bool derived = false;  ///< false: there were no trained weights to derive them from
  long multipliers = 0;  ///< multipliers and biases
  long table_entries = 0;
  long weights = 0;  ///< codes of weights, and their scales
  long edges = 0;    ///< scales, zero points and bounds of activations
  long wrong = 0;
  std::vector<WrongConstant> first;  ///< the first wrong constant of each kind of each node, in graph order

  long count() const { return multipliers + table_entries + weights + edges; }
};

/// Returns a line that begins with "constants: ": how many were derived and that none is wrong, or which are wrong, or
/// that they were not derived.
std::string describe(const DerivedConstants& constants);

/// What was trained.
struct TrainedNetwork {
  const Graph& written;        ///< before fuse(): epsilons, biases, functions and factors are read here
  const Prepared& prepared;    ///< says which nodes run, where activations went, and the bits of weights
  FloatParams params;          ///< weights of the float network as QAT left them, with the zeros of 2:4 sparse layers
  FloatParams weight_scales;   ///< by name of a convolution or linear, one for each channel
  std::vector<QParams> edges;  ///< for each node of prepared.graph
  const Preprocessing& preprocessing;
};

/// Compares every multiplier, bias, table entry and weight code of `graph`, and the codes of its activations, with what
/// follows from `trained`. Floats may differ by the roundings to float32 that they are made by; codes only where
/// float32 cannot tell on which side of a rounding border a value lies. Throws Error(promise) when `graph` is another
/// network.
DerivedConstants derive_constants(const TrainedNetwork& trained, const Int8Graph& graph);

}  // namespace octet
