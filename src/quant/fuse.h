// Graph passes without LibTorch: fuse, prepare, and the folding of BatchNorm into multipliers.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/observe/edge_quantizer.h"
#include "kernels/quantize.h"
#include "src/graph/graph.h"
#include "src/quant/bit_plan.h"

namespace octet {

/// Merges conv2d/linear + batch_norm + add + relu/relu6 chains into one node where the inner results have one consumer.
/// The merged node keeps the convolution's name, so that parameter names stay; the result computes the same function.
///   add: the convolution that feeds only the add takes the other side as its residual (inputs[1]); of two such
///     convolutions the later one does, the earlier keeps its own edge. Adds without one stay.
///   relu, relu6: become the activation of a conv2d, linear, add, concat, avg_pool or global_avg_pool, also in front
///     of a max_pool, flatten or subsample_pad, with which they commute. Where the value before is needed too they
///     stay.
///   dropout is dropped, and so is a last flatten of one pixel: logits are then the [classes, 1, 1] before it.
/// Throws Error(usage) for a bad graph, a node nobody reads, and a batch_norm that follows anything but a convolution
/// or linear of its own (convolution-relu-batch_norm, pre-activation networks). fuse(fuse(g)) is fuse(g).
/// QAT trains the fused graph, hence without dropout.
Graph fuse(const Graph& graph);

/// The last node, which writes float logits, must be a linear, or a conv2d or global_avg_pool of 1x1 output, without
/// activation; a flatten of more than one pixel may feed linears only (convert permutes their columns to HWC); else
/// Error(usage).
/// One set of qparams an edge. `root[n]` is the node whose output qparams node n's output uses: n itself, or for
/// max_pool, flatten and subsample_pad the root of its input. `range[n]` (for roots) gives the allowed code range
/// before calibration, from the plan's bits b: zero_point is final for symmetric_s8 ([-2^(b-1), 2^(b-1)-1], 0) and
/// unsigned_u8 ([0, 2^b-1], 0), to be calibrated for affine_u8. Under unsigned_u8 an edge that can be negative (no ReLU
/// before it) is symmetric_s8.
struct Prepared {
  Graph graph;  ///< fused, with the plan's requantize nodes
  QuantSpec spec;
  BitPlan bits;
  std::vector<int> root;
  std::vector<QParams> range;
  std::vector<bool> affine;       ///< zero point is calibrated
  std::vector<bool> nonnegative;  ///< the edge carries no negative real
  /// Of a conv2d or linear.
  WeightCodes weight_codes(int node) const { return octet::weight_codes(bits.weight_bits[node], spec.weight_range); }
  bool float_output(int node) const { return node + 1 == static_cast<int>(graph.nodes.size()); }  ///< no qparams there
};
Prepared prepare(const Graph& fused, const QuantSpec& spec);

/// Scale and zero point of an edge from the range [lo, hi] of its values, widened to hold zero, which is always exactly
/// representable. Symmetric: scale = max(|lo|, |hi|) / quant_max (unsigned: hi / quant_max); affine: scale = (hi - lo)
/// / (quant_max - quant_min), zero_point = clamp(rint(quant_min - lo / scale)) (Jacob et al. 2018, eq. 3; rounding it
/// moves both ends by up to half a step). lo = hi = 0 is an edge of zeros (a dead layer), which every scale represents:
/// it gets that of [0, 1]. Throws Error(promise) for lo > hi or non-finite ends.
QParams choose_qparams(double lo, double hi, const QParams& range, bool affine);

/// Codes and scales of one weight.
struct WeightSpec {
  WeightCodes codes;
  Granularity granularity = Granularity::per_channel;
};

/// Per-output-channel (or one, repeated) weight scales: the least whose codes hold all values (max |w| / highest for
/// symmetric codes); an all-zero channel gets scale 1 / highest.
std::vector<float> weight_scales(const float* weight, int channels, long per_channel, const WeightSpec& spec);

/// Float parameters by name, row-major as in PyTorch.
using FloatParams = std::map<std::string, std::vector<float>>;

/// Multiplier and bias of a convolution or linear with BatchNorm folded in, computed in double and rounded once:
///   g = gamma / sqrt(var + eps);  multiplier[k] = sx * sw[k] * g / sy;  bias[k] = (beta + (b - mean) * g) / sy
/// sy = 1 for float output. The one function that training, conversion and tests share. Throws Error(promise) on a
/// non-finite result.
struct Folded {
  std::vector<float> multiplier, bias;
};
Folded fold(const Node& node, const FloatParams& params, float x_scale, const std::vector<float>& weight_scale,
            float y_scale);

}  // namespace octet
