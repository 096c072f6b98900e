// The second pass: which edges share codes, and which codes each may take. No scale is known yet.
#pragma once

#include <vector>

#include "kernels/quantize.h"
#include "src/graph/graph.h"
#include "src/quant/bit_plan.h"

namespace octet {

/// A flatten of more than one pixel may feed linears only (convert permutes their columns to HWC); else Error(usage).
/// One set of qparams an edge. `root[n]` is the node whose output qparams node n's output uses: n itself, or for
/// what passes codes on (max_pool, flatten, slice ...) the root of its input. `range[n]` (for roots) gives the allowed
/// code range before calibration, from the plan's bits b: zero_point is final for symmetric_s8 ([-2^(b-1), 2^(b-1)-1],
/// 0) and unsigned_u8 ([0, 2^b-1], 0), to be calibrated for affine_u8. Under unsigned_u8 an edge that can be negative
/// (no ReLU before it) is symmetric_s8.
struct Prepared {
  Graph graph;  ///< fused, with the plan's requantize nodes
  QuantSpec spec;
  BitPlan bits;
  std::vector<int> root;
  std::vector<QParams> range;
  std::vector<bool> affine;       ///< zero point is calibrated
  std::vector<bool> nonnegative;  ///< the edge carries no negative real
  std::vector<bool> floats;       ///< the node gives floats: no qparams there
  std::vector<bool> sparse;       ///< its weights are 2:4 sparse
  /// Of a conv2d or linear.
  WeightCodes weight_codes(int node) const { return octet::weight_codes(bits.weight_bits[node], spec.weight_range); }
  bool float_output(int node) const { return floats[node]; }
  bool has_edge(int node) const { return root[node] == node && !float_output(node); }  ///< with qparams of its own
};
/// Throws Error(usage) where 2:4 sparsity is asked for and fits no layer.
Prepared prepare(const Graph& fused, const QuantSpec& spec);

}  // namespace octet
