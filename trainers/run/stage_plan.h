// SPDX-License-Identifier: Apache-2.0
// Where to cut a network into stages (octet inspect RECIPE --stages N): its parts are measured on this device, and the
// cuts that balance them are found.
#pragma once

#include <string>
#include <vector>

#include "trainers/run/run.h"

namespace octet {

/// The cost of the part between two neighbouring places where the network may be cut, for one micro-batch.
struct PartCost {
  std::string last;                 ///< the layer after which a cut would be
  double milliseconds = 0;          ///< forward and backward pass: the median of kTimesMeasured
  double fastest = 0, slowest = 0;  ///< of those passes; sums if this is the cost of several parts
  double kept_bytes = 0;            ///< kept from the forward to the backward pass, output included
  double border_bytes = 0;          ///< of the output: what a cut there sends, and receives as gradient
  double weight_bytes = 0;          ///< of the parameters, float32
};

constexpr int kTimesMeasured = 5;

/// Measures each part of run.graph by itself, with batch_size and precision of `recipe`. qat: the network of QAT
/// instead of the float network; images and weights are random, which does not change the time. recorded: on a GPU each
/// part is recorded as a CUDA graph and the replay is timed. Reads recipe.quant, graph and device of `run`.
std::vector<PartCost> measure_parts(const Run& run, const OptimizerRecipe& recipe, int micro_batches, bool qat,
                                    bool recorded);

struct StagePlan {
  std::vector<PartCost> stages;     ///< sums over their parts; kept_bytes: of all micro-batches under way in the stage
  std::vector<std::string> layers;  ///< for parallel.stages
  double speed_up = 0;              ///< over one device with the same micro-batches, if transfers took no time
};

/// Returns the cuts that finish a batch first, including the time that a stage waits for those before it. Among the
/// cuts within 2 % of that, it takes those whose fullest stage holds the fewest bytes. Throws Error(usage) if the
/// network has fewer parts than stages.
StagePlan plan_stages(const std::vector<PartCost>& parts, int stages, int micro_batches);

}  // namespace octet
