// The fake quantizers of a network, where its weights are: every edge's range and qparams, and the histograms of
// calibration. One interface, an implementation for the CPU and one for CUDA.
#pragma once

#include <memory>
#include <vector>

#include "src/model/model.h"
#include "src/qat/quantized_state.h"
#include "src/quant/calibrator.h"
#include "src/quant/prepare.h"
#include "src/quant/weight_scales.h"

namespace octet {

/// How scales come about.
struct QuantizerOptions {
  ObserverKind observer = ObserverKind::moving_average;  ///< of QAT
  double averaging = 0.01;                               ///< as in Observer
  WeightCalibrator weights = WeightCalibrator::minmax;
  EdgeScales edges = EdgeScales::fixed;  ///< whether they learn; a walk says whether they are observed
  bool keep_weight_scales = false;       ///< weights' scales that do not learn stay as calibrated, too
  /// On a GPU: weights in groups of layers, so that their gradients come group by group, not all at the walk's end.
  bool by_layer_groups = false;
};

/// Scales with tensors of their own, where the weights are: leaves that require gradients where the optimizer moves
/// them. Undefined: edges have those of their qparams, weights what their calibrator gives at each walk.
struct LearnedScales {
  at::Tensor edges;    ///< float [nodes]: scales or, of pact, widths; those of roots are used
  at::Tensor offsets;  ///< the same of lsq_plus
  at::Tensor weights;  ///< float [channels of all convolutions and linears, in their order]
};

class Quantizers {
 public:
  virtual ~Quantizers() = default;
  virtual at::Device device() const = 0;

  struct Walk {
    bool observe = false;                  ///< ranges follow the values first
    bool fold_batch_norm = false;          ///< BatchNorm's statistics are fixed: it becomes part of weights and biases
    const GatherShares* shares = nullptr;  ///< ranges follow all shares of a batch; null: the batch is whole
  };
  /// For a walk that quantizes; to be made anew for each, of weights and scales as they are then. `weights` must
  /// outlive it.
  virtual WalkHooks quantizing_hooks(const Weights& weights, const LearnedScales& learned, const Walk& walk) = 0;
  /// For a float walk that fills the histograms of calibration.
  virtual WalkHooks calibrating_hooks() = 0;

  // These wait for a GPU; not to be called in a step.
  virtual void upload(const EdgeState& edges) = 0;    ///< also clears the flags of require_finite()
  virtual void download(EdgeState& edges) const = 0;  ///< learned scales are not among them
  /// Replaces the observers of edges that calibrating walks saw.
  virtual void download_histograms(std::vector<Observer>& observers) const = 0;
  /// Throws Error(promise) naming the first node that observed, or weight that held, NaN, infinity or more than 1e30.
  /// On the CPU the walk itself does.
  virtual void require_finite() const = 0;
};

/// Where `device` is; `prepared` must outlive the result. Throws Error(usage) for a GPU in a build without CUDA.
std::unique_ptr<Quantizers> make_quantizers(const Prepared& prepared, const QuantizerOptions& options,
                                            at::Device device);

/// The scales that `calibrator` gives a conv2d's or linear's weight, on any device. Throws Error(promise) for NaN and
/// infinity.
std::vector<float> weight_scales(const Prepared& prepared, int node, const at::Tensor& weight,
                                 WeightCalibrator calibrator);

/// LearnedScales::weights in the parts of its nodes, in one operation; undefined ones where it is undefined.
std::vector<at::Tensor> by_node(const at::Tensor& weights, const Graph& graph);

std::unique_ptr<Quantizers> make_cpu_quantizers(const Prepared& prepared, const QuantizerOptions& options);
#if OCTET_CUDA
/// Weights are quantized in one launch and autocast's type, or in groups of layers, when the walk gets there; edges
/// when the walk gets there, in one pass with bias, residual and activation, and in place where nobody needs the value
/// before. Nothing is read back.
std::unique_ptr<Quantizers> make_cuda_quantizers(const Prepared& prepared, const QuantizerOptions& options,
                                                 at::Device device);
#endif

}  // namespace octet
