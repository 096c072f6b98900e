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
#include "src/quant/calibrator.h"
#include "src/quant/convert.h"

namespace octet {

class QuantizedModel {
 public:
  /// `weights` are shared, not copied: the trainer's optimizer updates them.
  QuantizedModel(Prepared prepared, Weights weights, ObserverKind observer, double averaging, bool mse_weights);

  struct Mode {
    bool training = false;  ///< of nodes that differ in training; dropout would be one, but fuse drops it
    bool batch_norm_training = false;
    bool observe = false;  ///< observers see every edge; qparams follow them (QAT)
    bool quantize = true;  ///< false: float walk that only observes (calibration)
  };
  /// x: normalized float [N, C, H, W]; logits [N, classes]. The float simulation: dequantized values, float
  /// convolutions.
  /// `look`, if given, sees every node's output as its consumers do. Throws Error(promise) naming the node when an
  /// observer meets NaN or infinity, and when quantizing before there are qparams.
  using Look = std::function<void(int node, const at::Tensor& output)>;
  at::Tensor forward(const at::Tensor& x, const Mode& mode, const Look& look = nullptr);

  /// Fixes all edges' qparams from what histogram observers saw in forward({.observe = true, .quantize = false}); QAT's
  /// observers go on from there. May be called again with another method.
  void calibrate(CalibrationMethod method, double percentile);

  const Prepared& prepared() const;
  const Weights& weights() const;
  std::vector<QParams> edges() const;  ///< by node
  FloatParams weight_scales() const;   ///< by conv/linear name, of the current weights
  Int8Graph convert(const Preprocessing& preprocessing, const std::vector<std::string>& class_names) const;

  /// Observer statistics and qparams for resume, as named tensors.
  std::map<std::string, at::Tensor> state() const;
  void load_state(const std::map<std::string, at::Tensor>& state);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Weights as plain row-major arrays, for quant's functions.
FloatParams float_params(const Weights& weights);

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
