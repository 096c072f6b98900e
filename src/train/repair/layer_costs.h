// SPDX-License-Identifier: Apache-2.0
// Which layers lose what a quantized network loses, over images without labels and with any outputs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/train/repair/output_error.h"

namespace octet {

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
