// SPDX-License-Identifier: Apache-2.0
// The fake quantizers of a network where its weights are: the range and qparams of every edge, and the histograms of
// calibration. There is one interface, implemented for the CPU and for CUDA. What a QuantizedModel saves of them to
// continue bit for bit is declared here, too (quantized_state.cpp).
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/net/graph.h"
#include "src/quant/calibrate.h"
#include "src/quant/plan.h"
#include "src/quant/weight_scales.h"
#include "src/train/model/model.h"

namespace octet {

/// Where scales come from.
struct QuantizerOptions {
  ObserverKind observer = ObserverKind::moving_average;  ///< in QAT
  double averaging = 0.01;                               ///< as in Observer
  WeightCalibrator weights = WeightCalibrator::minmax;
  EdgeScales edges = EdgeScales::fixed;  ///< whether they learn; a walk says whether they are observed
  QatForward forward = QatForward::simulation;
  /// On a GPU: quantizes weights in groups of layers, so that the backward pass gives their gradients group by group
  /// and not all at its end.
  bool by_layer_groups = false;
  /// On a GPU, while BatchNorm follows the batches: what a layer gives one convolution alone is not kept for the
  /// backward pass, but made again there from what BatchNorm has kept, unless the convolution's padding is uneven.
  /// Takes less memory and more time. Its range must not move between the two passes, as where micro-batches are
  /// observed.
  bool recompute = false;
};

/// Scales that are tensors where the weights are; leaves that require gradients where the optimizer updates them.
/// Undefined: edges have the scales of their qparams, weights those that their calibrator gives at each walk.
struct LearnedScales {
  at::Tensor edges;    ///< float [nodes]: scales; those of roots are used
  at::Tensor offsets;  ///< float [nodes], for lsq_plus
  at::Tensor weights;  ///< float [channels of all convolutions and linears, in their order]
};

struct EdgeState {
  std::vector<QParams> qparams;                       ///< by node; a node that passes codes on has its root's
  std::vector<Observer> observers;                    ///< by node; those of roots are used
  CalibrationMethod method = CalibrationMethod::mse;  ///< for histogram observers in QAT
  double percentile = 99.99;
  bool ready = false;  ///< qparams come from data

  /// Sets the qparams of a root and of the nodes that pass its codes on.
  void set(int root, const QParams& q, const Prepared& prepared);
};

/// Returns what kernels do for an activation.
kernels::Clamp clamp_of(Activation activation);

class Quantizers {
 public:
  virtual ~Quantizers() = default;
  virtual at::Device device() const = 0;

  struct Walk {
    bool observe = false;                  ///< ranges follow the values before these are quantized
    bool fold_batch_norm = false;          ///< BatchNorm's statistics are fixed, and part of weights and biases
    const GatherShares* shares = nullptr;  ///< ranges follow all shares of a batch; null: the batch is whole
    /// The whole network is walked, and no one looks at or changes single nodes: functions and products may be parts of
    /// other nodes' passes, and the output of a layer may be that of the function behind it.
    bool joins_nodes = false;
  };
  /// Returns the hooks of one walk that quantizes, with weights and scales as they are now. `weights` must outlive
  /// them.
  virtual WalkHooks quantizing_hooks(const Weights& weights, const LearnedScales& learned, const Walk& walk) = 0;
  /// Returns the hooks of float walks that fill the histograms of calibration.
  virtual WalkHooks calibrating_hooks() = 0;
  /// Says that a walk that observes is about to be launched, perhaps as a recording, for which no hooks are made.
  virtual void ranges_move() {}

  // The following wait for a GPU, and are not for steps.

  virtual void upload(const EdgeState& edges) = 0;    ///< also clears the flags of require_finite()
  virtual void download(EdgeState& edges) const = 0;  ///< all but learned scales
  /// Replaces the observers of edges that calibrating walks saw.
  virtual void download_histograms(std::vector<Observer>& observers) const = 0;
  /// Throws Error(promise) naming the first node whose observer or weight met NaN, infinity or more than 1e30. On the
  /// CPU the walk itself throws.
  virtual void require_finite() const = 0;
};

/// Returns the quantizers for `device`. `prepared` must outlive them. Throws Error(usage) for a GPU in a build without
/// CUDA.
std::unique_ptr<Quantizers> make_quantizers(const Prepared& prepared, const QuantizerOptions& options,
                                            at::Device device);
#if OCTET_CUDA
/// Weights are quantized in autocast's type: all in one launch, or in groups when the walk gets to them. Edges are
/// quantized in one pass with bias, residual and activation, in place where no one needs the value before. Nothing is
/// copied to the host, but ranges by the first walk that joins functions after ranges_move() or one that observed.
std::unique_ptr<Quantizers> make_cuda_quantizers(const Prepared& prepared, const QuantizerOptions& options,
                                                 at::Device device);
#endif

/// Returns the scales that `calibrator` gives the weight of a conv2d or linear, on any device. Throws Error(promise)
/// for NaN and infinity.
std::vector<float> weight_scales(const Prepared& prepared, int node, const at::Tensor& weight,
                                 WeightCalibrator calibrator);

/// Returns LearnedScales::weights in parts by node, made in one operation; undefined ones if it is undefined.
std::vector<at::Tensor> by_node(const at::Tensor& weights, const Graph& graph);

/// Returns f(), and puts the node's name before the message of an Error that it throws.
template <class F>
auto at_node(const Node& node, const F& f) {
  try {
    return f();
  } catch (const Error& error) {
    throw Error(error.code(), "'" + node.name + "': " + error.what());
  }
}

/// Throws Error(usage) with the cure if QAT on that device cannot use the recipe's quant.observer; to be called before
/// anything is trained.
void require_observer(ObserverKind observer, at::DeviceType device);

/// Throws Error(usage) with the cure if a network cannot train on codes (int8_forward.h), with such ranges on such a
/// device; to be called before anything is trained.
void require_int8_forward(const Prepared& prepared, EdgeScales edges, at::DeviceType device);

// The state as named tensors.

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
