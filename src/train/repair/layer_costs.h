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

/// Returns the cost of every node with weights or an edge of its own, in the order of the graph, against the float
/// network with the model's weights. `most` of them, those that add most to what their inputs have lost, are also
/// measured alone; `done` is called before each of these. x: batches of images that calibration did not see.
std::vector<LayerCost> layer_costs(QuantizedModel& model, const std::vector<at::Tensor>& x, int most,
                                   const std::function<void(int layer)>& done);

}  // namespace octet
