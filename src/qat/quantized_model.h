// The network with fake quantizers: what QAT trains, what PTQ calibrates, and, in evaluation, the graph whose codes the
// engines must reproduce.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/engine/engine.h"
#include "src/model/model.h"
#include "src/qat/quantizers.h"
#include "src/quant/calibrator.h"
#include "src/quant/convert.h"
#include "src/quant/float_params.h"
#include "src/quant/prepare.h"

namespace octet {

class QuantizedModel {
 public:
  /// `weights` are shared, not copied: the trainer's optimizer updates them.
  QuantizedModel(Prepared prepared, Weights weights, const QuantizerOptions& options);

  struct Mode {
    bool training = false;  ///< of nodes that differ in training; dropout would be one, but fuse drops it
    bool batch_norm_training = false;
    bool observe = false;  ///< observers see every edge; qparams follow them (QAT)
    bool quantize = true;  ///< false: float walk that only observes (calibration)
    /// x is one share of a batch. With the first BatchNorm's statistics in training are those of all shares, with the
    /// second observed ranges while quantizing. Null: x is the batch. Must outlive the backward pass.
    const GatherShares* batch_norm_shares = nullptr;
    const GatherShares* range_shares = nullptr;
  };
  /// x: normalized float [N, C, H, W]; logits [N, classes]. The float simulation: dequantized values, float
  /// convolutions.
  /// `look`, if given, sees every node's output as its consumers do. Throws Error(promise) naming the node when an
  /// observer meets NaN or infinity, and when quantizing before there are qparams.
  ///
  /// Runs where the weights are. On a GPU in autocast's type (x stays float32); observers' ranges, qparams and what
  /// they met stay there (require_finite()), nothing is read back and nothing copied from the host after the first
  /// call, so that forward and backward can be captured in a CUDA graph. For the backward pass it keeps each
  /// convolution's input and output and one bit a value. Observing there with ObserverKind::histogram while quantizing
  /// throws Error(usage).
  using Look = std::function<void(int node, const at::Tensor& output)>;
  at::Tensor forward(const at::Tensor& x, const Mode& mode, const Look& look = nullptr);

  /// What forward(x, mode) walks with, while quantizing: for whoever walks prepared().graph in parts
  /// (src/model/walk_part.h), with the weights and scales of now: made anew when those change. The model must outlive
  /// it. Throws Error(promise) for 2:4 sparse weights, which forward() chooses anew each time.
  WalkHooks quantizing_hooks(const Mode& mode);

  /// forward(x, {}) where `change` sees, and may change, what each node gives before bias, residual and activation.
  using Change = std::function<void(int node, Unfinished& y)>;
  void forward_changing(const at::Tensor& x, const Change& change);

  /// forward(x, {}, look) in which weights and edges of only those nodes are quantized; the others stay float. Throws
  /// Error(promise) before there are qparams.
  at::Tensor forward_partly(const at::Tensor& x, const std::vector<bool>& quantized, const Look& look = nullptr);

  /// Fixes all edges' qparams from what histogram observers saw in forward({.observe = true, .quantize = false}); QAT's
  /// observers go on from there. May be called again with another method. `merge`, where the model saw a share of the
  /// pictures, adds what others saw to the observers, by node. This and all below wait for the GPU.
  using Merge = std::function<void(std::vector<Observer>& histograms)>;
  void calibrate(CalibrationMethod method, double percentile, const Merge& merge = nullptr);

  /// Of the edges that calibrate() saw those whose codes reach at least `times` as far as 99.9 % of the values do, the
  /// furthest first: so many of the codes are kept for one value in a thousand.
  struct WideEdge {
    std::string node;
    Reach reach;
  };
  std::vector<WideEdge> wide_edges(double times) const;

  /// Observers begin anew: the next batch that they see is their first.
  void restart_observers();

  /// On a GPU an observer that met NaN or infinity, and weights that held them, set a flag: throws Error(promise)
  /// naming the node if one is set. Waits for the GPU; call it now and then. On the CPU forward() itself throws.
  void require_finite() const;

  /// What QAT learns of quantizers, by name: "edges.scale" or (pact) "edges.alpha" and (lsq_plus) "edges.offset"
  /// [nodes], "weights.scale" [channels of all convolutions and linears]; empty where the options have none. Leaves
  /// where the weights are, shared: the trainer's optimizer updates them.
  Weights learned_scales() const;

  /// After a step: an offset that would take its zero point out of the codes goes back to the last that does not. Where
  /// the offsets are, without waiting; nothing for other rules than lsq_plus.
  void hold_zero_points();

  /// Float [channels of all convolutions and linears] where the weights are, shared: the scales of weights that learn
  /// or stay as calibrated. Undefined where they follow the weights.
  at::Tensor weight_scale_tensor() const;

  bool has_scales() const;  ///< qparams of activations come from data: calibrated, observed or loaded
  const Prepared& prepared() const;
  const Weights& weights() const;
  Weights used_weights() const;        ///< weights(), those of 2:4 sparse layers with their zeros
  std::vector<QParams> edges() const;  ///< by node
  FloatParams weight_scales() const;   ///< by conv/linear name; learned, or of the current weights
  Int8Graph convert(const Preprocessing& preprocessing, const std::vector<std::string>& class_names) const;

  /// Observer statistics and qparams for resume, as named tensors.
  std::map<std::string, at::Tensor> state() const;
  void load_state(const std::map<std::string, at::Tensor>& state);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Throws Error(usage) with the cure when QAT on that device cannot use the recipe's quant.observer: to be asked before
/// anything is trained.
void require_observer(ObserverKind observer, at::DeviceType device);

/// Weights as plain row-major arrays, for quant's functions.
FloatParams float_params(const Weights& weights);
void set_float_params(const Weights& weights, FloatParams params);  ///< in place, of the same names and sizes

/// Programs over LibTorch, so that float, simulation and QAT graph are evaluated and compared exactly like engines.
/// They run where the weights are, in float32 proper: on a GPU without TF32, so that a float accuracy does not depend
/// on what the recipe allows in training. Float and simulation read the weights at each run. The float program never
/// calls a tap; the simulation's taps give the codes its values stand for, in the engines' layout.
std::unique_ptr<Program> float_program(const Graph& graph, const Weights& weights, const Preprocessing& preprocessing);
std::unique_ptr<Program> simulation_program(const QuantizedModel& model, const Preprocessing& preprocessing);
/// The QAT graph in evaluation mode: exact convolutions on codes by LibTorch operators (src/qat/exact_conv2d.h: float32
/// where sums provably stay under 2^24, float64 else), then the shared requantize rule. Taps give the engines' bytes.
/// Takes a snapshot of weights and qparams.
std::unique_ptr<Program> qat_graph_program(const QuantizedModel& model, const Preprocessing& preprocessing);

}  // namespace octet
