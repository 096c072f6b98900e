// SPDX-License-Identifier: Apache-2.0
// What quantization changes at the outputs of a network, over images without labels; the choice of ranges by it;
// and which layers lose it (layer_costs.cpp).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/quant/calibrate.h"
#include "src/train/proof/deployed_network.h"
#include "src/train/qat/quantized_model.h"
#include "src/train/repair/joint_ranges.h"

namespace octet {

/// One output compared with the float network's.
struct OutputError {
  std::string name;
  double sqnr_db = 0;    ///< 10 log10(E[x^2] / E[(x - y)^2]); infinite: they are equal
  double agreement = 0;  ///< share of the images, or of their pixels, with the same largest channel
  double lost = 0;       ///< mean over images of noise / (noise + signal), 0 to 1; signal: squares around the
                         ///< channel's median over all images. A ruined image counts 1, however far it is off
  size_t silent = 0;     ///< silent_images(), where network_costs() gives it
};

/// Returns 10 log10(signal / noise); infinite without noise.
double signal_to_noise_db(double signal, double noise);

/// Returns the mean of OutputError::lost.
double mean_lost(const std::vector<OutputError>& errors);

/// The outputs of a float network over batches of images.
struct FloatOutputs {
  explicit FloatOutputs(std::vector<std::vector<at::Tensor>> outputs);
  FloatOutputs of_batch(size_t batch) const;  ///< with the median over all images

  std::vector<std::vector<at::Tensor>> y;  ///< by batch, by output
  /// By output: its channels' median over all images and pixels, [1, C, 1]. One image on which a network explodes would
  /// move the mean so far that all others seemed to have signal.
  std::vector<at::Tensor> median;
};

/// Returns the outputs of a model that is not quantized. x: batches of normalized float [N, C, H, W] where the weights
/// are. Repairs change weights and biases: what they are judged against is taken before them.
FloatOutputs float_outputs(QuantizedModel& model, const std::vector<at::Tensor>& x);

/// Returns on how many images an output says nothing: no value lies a code of eight bits, 1/255 of the output's largest
/// magnitude, from its channel's median. Those are the images without what the network looks for.
size_t silent_images(const FloatOutputs& wanted, size_t output);

/// Compares the outputs of a network with the float network's. got: returns those of a batch of wanted.y.
std::vector<OutputError> output_errors(const Graph& graph, const FloatOutputs& wanted,
                                       const std::function<std::vector<at::Tensor>(size_t batch)>& got);

/// The outputs of a float network over some images, and what they become when a model is quantized.
class OutputErrors {
 public:
  /// wanted: the float network's outputs for the batches x, as float_outputs() returns them.
  OutputErrors(QuantizedModel& model, const std::vector<at::Tensor>& x, FloatOutputs wanted);

  /// Compares the whole quantized network, as DeployedNetwork runs it.
  std::vector<OutputError> measure() const;

  /// Returns the whole quantized network, to be measured.
  DeployedNetwork deployed() const;

  /// Returns mean_lost() of `network` over the first batch, the first two, and so on to all. Ends where one exceeds
  /// that of `most`, if that is given.
  std::vector<double> lost_by_batches(DeployedNetwork& network, const std::vector<double>& most = {}) const;
  double lost() const;
  size_t nodes() const { return model_.prepared().graph.nodes.size(); }
  const std::vector<at::Tensor>& median() const { return wanted_.median; }  ///< of the float network's outputs

 private:
  QuantizedModel& model_;
  const std::vector<at::Tensor>& x_;
  FloatOutputs wanted_;
};

/// How the ranges of all edges are found: by a method that sees the values of each alone, or by joint_ranges().
struct RangeMethod {
  std::optional<CalibrationMethod> method;  ///< empty: joint_ranges()
  double percentile = 100;

  bool joint() const { return !method; }
};
inline constexpr RangeMethod kJointRanges{std::nullopt};

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
  bool joint_fits = true;   ///< false: joint_ranges() was not tried, since one image's pass exceeds the GPU's memory

  RangeMethod best_method() const;                                     ///< of those that see each edge's values alone
  RangeMethod chosen_method() const { return trials[chosen].ranges; }  ///< that most edges have
};

/// Sets the ranges of a calibrated model to those among `methods` that lose least at the outputs: first one method for
/// all edges, then other ones for single edges where the methods differ most, as long as that pays, in at most `trials`
/// trials. errors: of this model, over images that calibration did not see. seen: calibration images for
/// joint_ranges(), not read where no method is that. At least one method sees each edge's values alone: the best of
/// those is what observers go on with in QAT. `done` is called before each trial, and for joint_ranges() before each of
/// its passes.
ChosenRanges choose_ranges(QuantizedModel& model, const OutputErrors& errors, const std::vector<RangeMethod>& methods,
                           const SeenImages& seen, int trials, const std::function<void(int trial)>& done);

/// A layer's share of what is lost.
struct LayerCost {
  std::string name, op;
  double sqnr_db = 0;                ///< of its output, with all nodes quantized
  std::optional<double> alone_lost;  ///< mean OutputError::lost over the outputs with this node alone quantized;
                                     ///< measured where the output is worst
};

/// What a network loses, as a whole and by layer.
struct NetworkCosts {
  std::vector<OutputError> outputs;
  std::vector<LayerCost> layers;  ///< nodes with weights or an edge of their own, in the order of the graph
};

/// Measures what a quantized network loses. x: batches of images that calibration did not see. Outputs are compared,
/// over all of them, with those of `original`, or if it is null with those of `floats`. Layers are compared, over the
/// first batches with at least eight images, with the float walk of `floats`: the model itself, or one of the same
/// graph and ranges whose weights and biases no repair has changed. `most` layers, those that add most to what their
/// inputs have lost, are also measured alone, in `floats`, on at least four images; `done` is called before each of
/// these.
NetworkCosts network_costs(QuantizedModel& model, QuantizedModel& floats, QuantizedModel* original,
                           const std::vector<at::Tensor>& x, int most, const std::function<void(int layer)>& done);

}  // namespace octet
