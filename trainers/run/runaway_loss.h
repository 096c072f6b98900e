// A training whose loss ran away goes on to its end: the user is told when it happens, not by the accuracy at the end.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/recipe/recipe.h"
#include "src/report/report.h"

namespace octet {

/// What to say after the last of `epochs` (metrics.jsonl's), if its training's cross entropy is more than 0.5 above
/// twice the least of its phase's epochs before it, of the first epoch: above twice `first`, the loss of the phase's
/// first step; empty otherwise, and where the epoch before was as bad.
std::string runaway_loss(const std::vector<EpochMetrics>& epochs, const Recipe& recipe,
                         std::optional<double> first = std::nullopt);

}  // namespace octet
