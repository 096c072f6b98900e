// Where to cut a network into stages: its parts measured on this device, and the cuts that balance them.
#pragma once

#include <string>
#include <vector>

#include "trainers/run/run.h"

namespace octet {

/// Between two neighbouring places where the network may be cut, of one micro-batch.
struct PartCost {
  std::string last;                 ///< the layer behind which a cut would be
  double milliseconds = 0;          ///< forward and backward pass: the median of kTimesMeasured
  double fastest = 0, slowest = 0;  ///< of those; of several parts each one's, added up
  double kept_bytes = 0;            ///< from forward to backward pass, with what the part gives
  double border_bytes = 0;          ///< of what it gives: what a cut there sends, and takes back as gradient
  double weight_bytes = 0;          ///< of its parameters, float32
};

constexpr int kTimesMeasured = 5;

/// Measures all parts of run.graph, each alone: QAT's network on random pictures and with random weights (a part's time
/// does not depend on them) if `qat`, the float network else. As `recipe` says: batch_size and precision. On a GPU each
/// is recorded once as a CUDA graph if `recorded`, and timed as it is replayed. run: recipe.quant, graph, device.
std::vector<PartCost> measure_parts(const Run& run, const OptimizerRecipe& recipe, int micro_batches, bool qat,
                                    bool recorded);

struct StagePlan {
  std::vector<PartCost> stages;  ///< sums over their parts; kept_bytes: of all micro-batches that are under way there
  std::vector<std::string> layers;  ///< parallel.stages
  double speed_up = 0;              ///< over one device with the same micro-batches, were travelling free
};

/// The cuts by which a batch is done first, a later stage's wait for those before it counted; of those within 2 % of
/// that the ones whose fullest stage holds the least.
/// Throws Error(usage) where the network has fewer parts than stages.
StagePlan plan_stages(const std::vector<PartCost>& parts, int stages, int micro_batches);

}  // namespace octet
