// The quantizers of a network whose weights are on a GPU: every edge's range and qparams, and the histograms of
// calibration, live in its memory. A step reads nothing back.
#pragma once

#include <memory>
#include <vector>

#include "src/model/model.h"
#include "src/qat/quantized_state.h"
#include "src/quant/prepare.h"

namespace octet {

class CudaQuantizers {
 public:
  virtual ~CudaQuantizers() = default;
  virtual at::Device device() const = 0;

  struct Walk {
    bool observe = false;          ///< ranges follow the values first
    bool fold_batch_norm = false;  ///< BatchNorm's statistics are fixed: it becomes part of weights and biases
  };
  /// For a walk that quantizes: all weights are quantized now, in one launch and autocast's type; edges when the walk
  /// gets there, in one pass with bias, residual and activation, and in place where nobody needs the value before.
  virtual WalkHooks quantizing_hooks(const Weights& weights, const Walk& walk) = 0;
  /// For a float walk that fills the histograms of calibration.
  virtual WalkHooks calibrating_hooks() = 0;

  // These wait for the GPU; not to be called in a step.
  virtual void upload(const EdgeState& edges) = 0;  ///< also clears the flags of require_finite()
  virtual void download(EdgeState& edges) const = 0;
  /// Replaces the observers of edges whose histogram is on the device. Throws Error(promise) like require_finite().
  virtual void download_histograms(std::vector<Observer>& observers) const = 0;
  /// Throws Error(promise) naming the first node that observed, or weight that held, NaN, infinity or more than 1e30.
  virtual void require_finite() const = 0;
};

struct CudaQuantizersOptions {
  bool mse_weights = false;
  double averaging = 0;  ///< as Observer::averaging() gives it
};

/// `prepared` must outlive the result. Throws Error(usage) in a build without CUDA.
std::unique_ptr<CudaQuantizers> make_cuda_quantizers(const Prepared& prepared, const CudaQuantizersOptions& options,
                                                     at::Device device);

}  // namespace octet
