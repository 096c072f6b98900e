// What a QuantizedModel must keep to go on bit for bit: qparams and observers' statistics, as named tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "src/quant/calibrator.h"
#include "src/quant/prepare.h"

namespace octet {

struct EdgeState {
  std::vector<QParams> qparams;                       ///< by node; pass-through nodes have their root's
  std::vector<Observer> observers;                    ///< by node; those of roots are used
  CalibrationMethod method = CalibrationMethod::mse;  ///< for histogram observers in QAT
  double percentile = 99.99;
  bool ready = false;  ///< qparams come from data

  /// Those of a root and of the nodes that pass its codes on.
  void set(int root, const QParams& q, const Prepared& prepared);
};

/// Tensors, one row a node: "edges.scale" F32, "edges.zero_point" I32, "observer.range" F64 [n, 2] (F32 in older
/// files), "observer.seen" I32, "calibration" F64 [method, percentile, ready]; with histograms "observer.histogram" F64
/// [n, bins] and "observer.histogram_range" F32 [n, 2].
std::map<std::string, at::Tensor> save_state(const EdgeState& edges, ObserverKind kind);

/// Reads what save_state wrote into edges of the same network. Throws Error(data) naming a missing or misshaped tensor
/// or values that cannot be, and leaves `edges` as it was.
void load_state(const std::map<std::string, at::Tensor>& state, ObserverKind kind, EdgeState& edges);

/// state["weights.scale"] F32, for `learned`, the scales of weights that learn; undefined where they do not. Throws
/// Error(data) with the cure when the state has them and the recipe does not, or the reverse, and for impossible ones.
at::Tensor learned_weight_scales(const std::map<std::string, at::Tensor>& state, const at::Tensor& learned);

/// state[name] F32 for `learned`, offsets or clipping levels of edges that learn ("edges.offset", "edges.alpha");
/// undefined where they do not. Throws Error(data) as learned_weight_scales() does.
at::Tensor learned_ranges(const std::map<std::string, at::Tensor>& state, const std::string& name,
                          const at::Tensor& learned);

/// The codes of every edge and weight, so that a state is never read under another bit plan: "codes" I32 [n, 4],
/// quant_min and quant_max of a node's output, lowest and highest of its weights (0, 0 where there are none).
void save_codes(const Prepared& prepared, std::map<std::string, at::Tensor>& state);

/// Throws Error(data) naming the first node that the state has other codes for, and the cure. A state without "codes"
/// is older than bit plans: activation_bits held for every edge, weight_bits for every weight.
void require_codes(const std::map<std::string, at::Tensor>& state, const Prepared& prepared);

}  // namespace octet
