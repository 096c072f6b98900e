// SPDX-License-Identifier: Apache-2.0
// From a float graph to a plan of its int8 graph, before any scale is known: which nodes run (fuse), how many bits each
// weight and activation has (plan_bits), which activations share codes and which codes each may take (prepare).
// An edge is the activation tensor that one node writes and others read.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/quantize.h"
#include "src/base/names.h"
#include "src/net/graph.h"

namespace octet {

/// Which codes activations get: signed around zero; unsigned where the activation is never negative, else signed; or
/// unsigned with a calibrated zero point.
enum class ActivationScheme { symmetric_s8, unsigned_u8, affine_u8 };
inline constexpr std::array<Named<ActivationScheme>, 3> kActivationSchemes = {
    {{ActivationScheme::symmetric_s8, "symmetric_s8"},
     {ActivationScheme::unsigned_u8, "unsigned_u8"},
     {ActivationScheme::affine_u8, "affine_u8"}}};

/// Whether a weight tensor has one scale, or one for each output channel.
enum class Granularity { per_tensor, per_channel };
inline constexpr std::array<Named<Granularity>, 2> kGranularities = {
    {{Granularity::per_channel, "per_channel"}, {Granularity::per_tensor, "per_tensor"}}};

/// The codes of weights; weight_codes() has the bounds.
enum class WeightRange { symmetric, full };
inline constexpr std::array<Named<WeightRange>, 2> kWeightRanges = {
    {{WeightRange::symmetric, "symmetric"}, {WeightRange::full, "full"}}};

/// two_of_four: of each four neighbouring input channels at one tap of a weight, at most two are not 0
/// (kernels/training/weights.h).
enum class Sparsity { none, two_of_four };
inline constexpr std::array<Named<Sparsity>, 2> kSparsities = {
    {{Sparsity::none, "none"}, {Sparsity::two_of_four, "2:4"}}};

/// Overrides the bits of the layers that `match` names. 0 leaves what the network's other rules give.
struct LayerBits {
  std::string match;  ///< a glob over the names of the fused graph's nodes: * and ?
  int weight_bits = 0, activation_bits = 0;
  bool operator==(const LayerBits&) const = default;
};

/// What the recipe's section `quant` says about codes. All bits are 2..8.
struct QuantSpec {
  ActivationScheme activation = ActivationScheme::affine_u8;
  int activation_bits = 8;  ///< of all edges that no other member names
  int weight_bits = 8;      ///< of all weights that no other member names
  Granularity weight_granularity = Granularity::per_channel;
  WeightRange weight_range = WeightRange::symmetric;
  Sparsity sparsity = Sparsity::none;
  int input_bits = 8;             ///< of the network's input
  int first_layer_bits = 8;       ///< of the weights of the layers that read the input
  int last_layer_bits = 8;        ///< of the weights of the layer that gives the logits, and of the edge it reads
  int residual_bits = 0;          ///< of the edges that adds, functions and the like read; 0: activation_bits
  std::vector<LayerBits> layers;  ///< later entries win over earlier ones
};

/// Returns a spec that gives every weight and every edge these bits, the first and last layers included.
QuantSpec uniform_bits(int activation_bits, int weight_bits);

/// Merges chains of conv2d or linear, batch_norm, add and relu or relu6 into one node each, where no other node reads
/// an inner result. A merged node keeps the convolution's name, so parameter names stay; the function stays the same.
///   add: the convolution that only the add reads takes the add's other side as its residual (inputs[1]). If both sides
///     are such convolutions, the later one does and the earlier one keeps its own edge. Other adds stay.
///   relu, relu6: become the activation of a conv2d, linear, add, mul, concat, lookup, average pool, resize_bilinear,
///     matmul, softmax or prelu, also through operators that pass codes on (max_pool, flatten, slice ...), with which
///     they commute. They stay where the value before them is needed, too.
///   dropout is dropped, and so is a flatten of a single pixel that is an output: the logits are then the
///     [classes, 1, 1] before it. Nothing behind an output of the network is merged into it.
/// Throws Error(usage) for an invalid graph, a node that nobody reads, two outputs that are the same value, and a
/// batch_norm that does not directly follow a convolution or linear of its own (as in pre-activation networks).
/// fuse(fuse(g)) equals fuse(g). QAT trains the fused graph, hence without dropout.
Graph fuse(const Graph& graph);

/// Bits of each node of the prepared graph.
struct BitPlan {
  std::vector<int> weight_bits;      ///< 2..8; 0: the node has no weights
  std::vector<int> activation_bits;  ///< 2..8, of the codes the node writes; 0: it writes floats
};

/// Returns the codes that weights of so many bits may take. symmetric: [-h, h] with h = 2^(bits - 1) - 1. full:
/// [-h - 1, h], except for 8 bits, where a checkpoint has no weight -128 (docs/FORMAT.md) and it is [-127, 127].
WeightCodes weight_codes(int bits, WeightRange range);

/// Returns for each node the node whose output scale and zero point its output uses: itself, or, for operators that
/// pass codes on, the root of its input.
std::vector<int> edge_roots(const Graph& graph);

/// Returns for each node whether it gives float32 instead of codes: an output of the network that no node reads, that
/// has no activation, and whose operator can compute floats.
std::vector<bool> float_outputs(const Graph& graph);

struct PlannedGraph {
  Graph graph;
  BitPlan bits;
};

/// Plans the bits of a fused graph. Later rules win over earlier ones:
///   all            every weight has weight_bits, every edge activation_bits
///   logits         the last layers (those whose output reaches an output of the network through no other weight) have
///                  last_layer_bits, as have the edges that they read, also through pools, and the edges from there to
///                  the output
///   input          the network's input, and what pools make of it before the first weights, has input_bits; the
///                  weights of the layers that read it have first_layer_bits
///   layers         weight_bits are those of the layer's weights, activation_bits those of the edge it writes
///   residual_bits  an edge that anything reads but weights and matmul (an add, lookup, mul, concat, average pool) has
///                  these bits, but never fewer than one of the three rules before gave it
/// A convolution or linear that reads an edge which is wider only for the sake of others gets a requantize node before,
/// named "<node it reads>.requantize": it reads as many bits as the edge would have without residual_bits.
/// Throws Error(usage) naming the key of `spec`: for bits outside 2..8, for an entry of `layers` that names no layer
/// (with the nearest names), or only layers without weights or without codes of their own.
PlannedGraph plan_bits(const Graph& fused, const QuantSpec& spec);

/// The shape of one output channel's weights in a conv2d or linear, in PyTorch's order: [inputs, taps]. For a linear
/// behind a flatten, the taps are the pixels of the flattened image.
struct WeightRows {
  long inputs = 0, taps = 0;
};
WeightRows weight_rows(const Graph& graph, int node);

/// Returns for each node of a fused graph why its weights stay dense under 2:4 sparsity, or "" where they can be sparse
/// or there are none. Dense stay the first layers, which read the network's input, as is usual; depthwise layers, which
/// have no four input channels; and layers whose input channels are not a multiple of four.
std::vector<std::string> dense_reasons(const Graph& fused);

/// A fused graph with everything that is known of its codes before calibration. Vectors have an entry for each node.
struct Prepared {
  Graph graph;  ///< the fused graph, with the plan's requantize nodes
  QuantSpec spec;
  BitPlan bits;
  std::vector<int> root;  ///< as edge_roots() gives it
  /// The codes the output may take; nodes that share a root share them. With b bits: [-2^(b-1), 2^(b-1) - 1] and zero
  /// point 0 for symmetric_s8; [0, 2^b - 1] for affine_u8, whose zero point is still to be calibrated; for unsigned_u8
  /// [0, 2^b - 1] and zero point 0, or as symmetric_s8 where the output can be negative (no ReLU before it).
  std::vector<QParams> range;
  std::vector<bool> affine;       ///< whether the zero point is calibrated
  std::vector<bool> nonnegative;  ///< whether the output is never negative
  std::vector<bool> floats;       ///< whether the node gives floats, which have no scale
  std::vector<bool> sparse;       ///< whether its weights are 2:4 sparse
  /// The codes of the weights of a conv2d or linear.
  WeightCodes weight_codes(int node) const { return octet::weight_codes(bits.weight_bits[node], spec.weight_range); }
  bool float_output(int node) const { return floats[node]; }
  /// Whether the node's output has a scale of its own.
  bool has_edge(int node) const { return root[node] == node && !float_output(node); }
};

/// Plans the bits of a fused graph and the codes of its edges. Throws Error(usage) as plan_bits() does; where a flatten
/// of more than one pixel feeds anything but linears, whose columns convert() permutes to HWC order; and where 2:4
/// sparsity is asked for and fits no layer.
Prepared prepare(const Graph& fused, const QuantSpec& spec);

/// Returns the `count` names nearest to the glob, nearest first, as "a, b, c" for messages.
std::string nearest_names(std::string_view glob, std::vector<std::string_view> names, size_t count = 3);

}  // namespace octet
