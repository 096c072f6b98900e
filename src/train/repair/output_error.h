// SPDX-License-Identifier: Apache-2.0
// What quantization changes at the outputs of a network, over images without labels; and the choice of ranges by it.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "src/quant/calibrate.h"
#include "src/train/qat/quantized_model.h"

namespace octet {

/// One output compared with the float network's.
struct OutputError {
  std::string name;
  double sqnr_db = 0;    ///< 10 log10(E[x^2] / E[(x - y)^2]); infinite: they are equal
  double agreement = 0;  ///< share of the images, or of their pixels, with the same largest channel
  double lost = 0;       ///< mean over images of noise / (noise + signal), 0 to 1; signal: squares around the
                         ///< channel's mean over all images. A ruined image counts 1, however far it is off
};

/// Returns 10 log10(signal / noise); infinite without noise.
double signal_to_noise_db(double signal, double noise);

/// Returns the mean of OutputError::lost.
double mean_lost(const std::vector<OutputError>& errors);

/// The outputs of a float network over some images, and what they become when parts of it are quantized.
class OutputErrors {
 public:
  /// x: batches of normalized float [N, C, H, W] where the weights are. The float network has the model's weights.
  OutputErrors(QuantizedModel& model, const std::vector<at::Tensor>& x);

  /// Compares the network with the nodes of `quantized` quantized; without an argument with all of them.
  std::vector<OutputError> measure(const std::vector<bool>& quantized) const;
  std::vector<OutputError> measure() const { return measure(std::vector<bool>(nodes(), true)); }

  /// Returns mean_lost() with the whole network quantized.
  double lost() const { return mean_lost(measure()); }
  size_t nodes() const { return model_.prepared().graph.nodes.size(); }

 private:
  std::vector<at::Tensor> outputs(const at::Tensor& x, const std::vector<bool>& quantized) const;

  QuantizedModel& model_;
  const std::vector<at::Tensor>& x_;
  std::vector<std::vector<at::Tensor>> wanted_;  // by batch, by output
  std::vector<at::Tensor> mean_;                 // by output, [C, 1, 1]
};

struct RangeMethod {
  CalibrationMethod method;
  double percentile = 100;
};

/// What choose_ranges() tried and took.
struct ChosenRanges {
  struct Trial {
    RangeMethod ranges;
    double lost = 0;  ///< OutputErrors::lost() with it for all edges
  };
  struct Edge {
    std::string node;
    RangeMethod ranges;
    float before = 0, after = 0;  ///< scales
  };
  std::vector<Trial> trials;
  size_t chosen = 0;        ///< the trial that most edges have
  std::vector<Edge> edges;  ///< the edges that have other ranges
  double lost = 0;          ///< with them
};

/// Sets the ranges of a calibrated model to those among `methods` that lose least at the outputs: first one method for
/// all edges, then other ones for single edges where the methods differ most, as long as that pays, in at most `trials`
/// trials. x: images that calibration did not see. `done` is called before each trial.
ChosenRanges choose_ranges(QuantizedModel& model, const std::vector<at::Tensor>& x,
                           const std::vector<RangeMethod>& methods, int trials,
                           const std::function<void(int trial)>& done);

}  // namespace octet
