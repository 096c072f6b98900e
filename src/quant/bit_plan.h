// The bit plan: how many bits every weight and every edge of a network has. prepare makes it, everything that quantizes
// follows it.
#pragma once

#include <vector>

#include "kernels/fake_quantize/weight_codes.h"
#include "src/graph/graph.h"
#include "src/quant/quant_spec.h"

namespace octet {

/// By node of the prepared graph.
struct BitPlan {
  std::vector<int> weight_bits;      ///< 2..8; 0: the node has no weights
  std::vector<int> activation_bits;  ///< 2..8, of the codes the node writes; 0: it writes floats
};

/// symmetric: [-h, h] with h = 2^(bits - 1) - 1. full: [-h - 1, h], but for 8 bits, where -128 is no weight in a
/// checkpoint (src/graph/README.md): [-127, 127] too.
WeightCodes weight_codes(int bits, WeightRange range);

/// By node: the node whose output qparams its output uses, itself or the first that does not pass codes on.
std::vector<int> edge_roots(const Graph& graph);

/// By node: whether it gives float32 itself, where it would else round: an output that no other node reads, without an
/// activation, whose operator computes. Other outputs are codes.
std::vector<bool> float_outputs(const Graph& graph);

struct PlannedGraph {
  Graph graph;
  BitPlan bits;
};

/// The plan of a fused graph, from the general to the particular:
///   all            weight_bits, activation_bits
///   logits         the last layers (whose output reaches an output of the network through no other weight) have
///                  last_layer_bits, so have the edges they read, also through pools, and those from there to the
///                  output
///   picture        its edge, and what pools make of it before the first weights, has input_bits; the weights of the
///                  layers that read it first_layer_bits
///   layers         weight_bits of a layer are those of its weights, activation_bits those of the edge it writes
///   residual_bits  of an edge that an add (or the residual input of a convolution) reads; never fewer than the
///                  edge got by one of the three lines before
/// A convolution or linear that reads an edge which is wider only for the add's sake gets a requantize node in front of
/// it, named "<node it reads>.requantize": it reads as many bits as the edge would have without residual_bits.
/// Throws Error(usage) naming the key of `spec`: bits outside 2..8, an entry of `layers` that names no layer (with the
/// nearest names) or only layers without weights or without codes of their own.
PlannedGraph plan_bits(const Graph& fused, const QuantSpec& spec);

}  // namespace octet
