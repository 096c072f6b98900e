// SPDX-License-Identifier: Apache-2.0
// The network with fake quantizers: QAT trains it, PTQ calibrates it, and in evaluation its codes are what the engines
// must reproduce. Also the Programs that evaluate it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/base/names.h"
#include "src/engine/engine.h"
#include "src/quant/calibrate.h"
#include "src/quant/convert.h"
#include "src/quant/node_constants.h"
#include "src/quant/plan.h"
#include "src/train/model/model.h"
#include "src/train/qat/quantizers.h"

namespace octet {

/// A handle: copies share one model.
class QuantizedModel {
 public:
  /// `weights` are shared, not copied: the trainer's optimizer updates them.
  QuantizedModel(Prepared prepared, Weights weights, const QuantizerOptions& options);

  struct Mode {
    bool training = false;             ///< for nodes that differ in training (dropout would, but fuse removes it)
    bool batch_norm_training = false;  ///< as in WalkMode
    bool observe = false;              ///< observers see every edge, and qparams follow them (QAT)
    bool quantize = true;              ///< false: a float walk that only observes (calibration)
    /// Set where x is one share of a batch, null where it is the whole batch. The first gives BatchNorm the statistics
    /// of all shares, the second gives observers the ranges of all shares. Must outlive the backward pass.
    const GatherShares* batch_norm_shares = nullptr;
    const GatherShares* range_shares = nullptr;
    bool joins_nodes = false;  ///< as in Quantizers::Walk; forward() sets it itself where there is no look
  };

  /// Returns the outputs of x, normalized float [N, C, H, W], as walk() does, by the float simulation: float
  /// convolutions of dequantized values. `look`, if given, sees every node's output as its consumers do. Throws
  /// Error(promise) naming the node when an observer meets NaN or infinity, and when it is to quantize without qparams.
  ///
  /// With QatForward::int8 and fixed ranges, a walk in training with BatchNorm fixed runs on codes (int8_forward.h);
  /// the first with a number of images prepares that and waits for the GPU.
  ///
  /// Runs where the weights are. On a GPU it runs in autocast's type (x stays float32), and ranges, qparams and what is
  /// not finite stay there (require_finite()): after the first call nothing is copied from or to the host, so that
  /// forward and backward can be captured in a CUDA graph. For the backward pass it keeps each convolution's input and
  /// output and one bit a value. Throws Error(usage) where require_observer() does.
  using Look = std::function<void(int node, const at::Tensor& output)>;
  at::Tensor forward(const at::Tensor& x, const Mode& mode, const Look& look = nullptr);

  /// Returns the number of what forward() launches in this mode: a CUDA graph recorded under another one must not be
  /// replayed. Only a forward pass on codes has more than one, since the ranges are part of what it launches. Waits for
  /// the GPU where they were set since the last call. To be called before each launch of a recording, too: ranges move
  /// there if it observes, and the next walk of another mode must know.
  int launches(const Mode& mode);

  /// Returns the hooks that forward(x, mode) walks with, for walking parts of prepared().graph (walk_part()). They hold
  /// the weights and scales of now, and are to be made anew when those change. The model must outlive them. Throws
  /// Error(promise) for 2:4 sparse weights, which forward() selects anew each time.
  WalkHooks quantizing_hooks(const Mode& mode);

  /// Runs forward(x, {}) where `change` sees, and may change, each node before bias, residual and activation.
  using Change = std::function<void(int node, Unfinished& y)>;
  void forward_changing(const at::Tensor& x, const Change& change);

  /// Returns forward(x, {}, look) with weights and edges of those nodes alone quantized, and the others float. With
  /// `after`, one of cut_points(), x is that node's output and only the nodes behind it run. Throws Error(promise)
  /// before there are qparams, where a node is quantized.
  at::Tensor forward_partly(const at::Tensor& x, const std::vector<bool>& quantized, const Look& look = nullptr,
                            int after = 0);

  // What follows waits for the GPU.

  /// Fixes all edges' qparams from what observers saw in forward({.observe = true, .quantize = false}); QAT's observers
  /// continue from there. May be called again with another method. Where the model saw a share of the images, `merge`
  /// adds to the observers, by node, what other processes saw.
  using Merge = std::function<void(std::vector<Observer>& histograms)>;
  void calibrate(CalibrationMethod method, double percentile, const Merge& merge = nullptr);

  /// Takes what calibrate() found that another model saw, which has the same edges and computes the same in float: in
  /// place of walks of its own before calibrate().
  void see_as(const QuantizedModel& other);

  /// Chooses the qparams of all edges again, from what calibrate() saw, by another method.
  void choose_edges(CalibrationMethod method, double percentile);

  /// Sets the qparams of all edges of a calibrated model, by node, each of the codes that it has; in QAT observers with
  /// histograms follow by that method, or by the one that they have.
  void set_edges(const std::vector<QParams>& qparams, CalibrationMethod method, double percentile);
  void set_edges(const std::vector<QParams>& qparams);

  /// Returns the calibrated edges whose codes represent magnitudes at least `times` as large as those of 99.9 % of the
  /// values: as many codes are spent on one value in a thousand. The widest comes first.
  struct WideEdge {
    std::string node;
    Reach reach;
  };
  std::vector<WideEdge> wide_edges(double times) const;

  /// Makes observers start again: the next batch is their first.
  void restart_observers();

  /// Throws Error(promise) naming a node whose observer or weights met NaN or infinity on a GPU, where that only sets a
  /// flag; to be called now and then. On the CPU forward() itself throws.
  void require_finite() const;

  /// Returns the quantizers' parameters that QAT learns, by name: "edges.scale" and (lsq_plus) "edges.offset", float
  /// [nodes]; "weights.scale", float [channels of all convolutions and linears]. Empty if the options have none. They
  /// are leaves where the weights are, shared with the model for the optimizer to update.
  Weights learned_scales() const;

  /// After a step with lsq_plus, sets each offset that would take its zero point out of the codes to the nearest that
  /// does not. Runs where the offsets are, without waiting.
  void hold_zero_points();

  bool has_scales() const;  ///< whether activations have qparams from data: calibrated, observed or loaded
  const Prepared& prepared() const;
  const Weights& weights() const;
  Weights used_weights() const;        ///< weights(), with the zeros of 2:4 sparse layers
  std::vector<QParams> edges() const;  ///< by node
  FloatParams weight_scales() const;   ///< by name of the conv2d or linear; learned, or of the current weights
  Int8Graph convert(const Preprocessing& preprocessing, const std::vector<std::string>& class_names) const;

  /// Returns observers' statistics and qparams as named tensors, from which load_state() continues bit for bit.
  std::map<std::string, at::Tensor> state() const;
  void load_state(const std::map<std::string, at::Tensor>& state);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Returns the weights as plain row-major arrays, for quant's functions.
FloatParams float_params(const Weights& weights);
void set_float_params(const Weights& weights, FloatParams params);  ///< in place; the same names and sizes

// 2:4 sparse weights (SR-STE; Zhou et al., arXiv 2102.04010): dense weights train, the network uses two of each four.

/// Returns `weights` where those of sparse layers keep the two of each four that are largest in magnitude now. The
/// gradient passes straight through to all four. Weights must be float32, contiguous or channels-last. Does not wait
/// for a GPU.
Weights sparse_weights(const Prepared& prepared, const Weights& weights);

/// Adds rate * w to the gradient of every weight w that is not kept, so that it decays to 0 unless the loss needs it.
/// Layers without a gradient are left out; a gradient must have its weight's layout. Does not wait for a GPU.
void decay_pruned(const Prepared& prepared, const Weights& weights, double rate);

// Programs over LibTorch, so that networks are evaluated and compared exactly as engines are. They run where the
// weights are, in float32 without TF32, whatever the recipe allows in training.

/// The float network. Reads the weights at each run; calls no tap.
std::unique_ptr<Program> float_program(const Graph& graph, const Weights& weights, const Preprocessing& preprocessing);

/// The float simulation. Reads weights and qparams at each run; taps see the codes of its values, in the engines'
/// layout.
std::unique_ptr<Program> simulation_program(const QuantizedModel& model, const Preprocessing& preprocessing);

/// The QAT graph in evaluation mode: exact integer sums by LibTorch's operators (src/train/proof/exact_operators.h),
/// then the rounding rule that all engines share. Taps see the engines' bytes. Takes a snapshot of weights and qparams.
std::unique_ptr<Program> qat_graph_program(const QuantizedModel& model, const Preprocessing& preprocessing);

/// The forward pass that QAT trains through, in evaluation mode: the simulation under autocast in `precision`, with
/// TF32 on a GPU where the process allows it. Its codes are near the engines', not equal: compared with the QAT graph
/// they show how far what runs is from what was trained.
std::unique_ptr<Program> trained_forward_program(const QuantizedModel& model, const Preprocessing& preprocessing,
                                                 Precision precision);

}  // namespace octet
