// SPDX-License-Identifier: Apache-2.0
// What a QuantizedModel saves to continue bit for bit: qparams and observers' statistics, as named tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "src/quant/calibrate.h"
#include "src/quant/plan.h"

namespace octet {

struct EdgeState {
  std::vector<QParams> qparams;                       ///< by node; a node that passes codes on has its root's
  std::vector<Observer> observers;                    ///< by node; those of roots are used
  CalibrationMethod method = CalibrationMethod::mse;  ///< for histogram observers in QAT
  double percentile = 99.99;
  bool ready = false;  ///< qparams come from data

  /// Sets the qparams of a root and of the nodes that pass its codes on.
  void set(int root, const QParams& q, const Prepared& prepared);
};

/// Returns tensors with one row a node: "edges.scale" F32, "edges.zero_point" I32, "observer.range" F64 [n, 2] (F32 in
/// older files), "observer.seen" I32, "calibration" F64 [method, percentile, ready]; with histograms
/// "observer.histogram" F64 [n, bins] and "observer.histogram_range" F32 [n, 2].
std::map<std::string, at::Tensor> save_state(const EdgeState& edges, ObserverKind kind);

/// Reads what save_state() returned into the edges of the same network. Throws Error(data) naming a missing or
/// misshaped tensor or impossible values, and then leaves `edges` unchanged.
void load_state(const std::map<std::string, at::Tensor>& state, ObserverKind kind, EdgeState& edges);

/// Returns state["weights.scale"] F32, which is to replace `learned`, the scales of weights that learn; undefined if
/// `learned` is. Throws Error(data) with the cure if only one of state and recipe has them, and for impossible values.
at::Tensor learned_weight_scales(const std::map<std::string, at::Tensor>& state, const at::Tensor& learned);

/// Returns state["edges.offset"] F32 in the same way: the offsets of edges.
at::Tensor learned_offsets(const std::map<std::string, at::Tensor>& state, const at::Tensor& learned);

/// Adds "codes" I32 [n, 4], so that a state is never read under another bit plan: quant_min and quant_max of a node's
/// output, lowest and highest code of its weights (0, 0 without weights).
void save_codes(const Prepared& prepared, std::map<std::string, at::Tensor>& state);

/// Throws Error(data) naming the first node for which the state has other codes, and the cure. A state without "codes"
/// is older than bit plans: activation_bits applied to every edge, weight_bits to every weight.
void require_codes(const std::map<std::string, at::Tensor>& state, const Prepared& prepared);

}  // namespace octet
