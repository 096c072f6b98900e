// What depends on the number of the step alone: learning rate and random seed. No LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/recipe/choices.h"
#include "src/recipe/recipe.h"

namespace octet {

/// Steps of an epoch; what is left of the images is not trained on. Throws Error(usage) when not even one batch is
/// there.
long steps_per_epoch(const OptimizerRecipe& recipe, size_t images, const std::string& phase);

/// Seed of one step's random numbers: a function of what it is for, not of what ran before (SplitMix64 over the parts).
uint64_t step_seed(uint64_t seed, const std::string& phase, int epoch, long step);

/// All in optimizer steps.
struct Schedule {
  ScheduleKind kind = ScheduleKind::constant;
  double peak = 0.1;             ///< the recipe's learning_rate
  long steps = 1;                ///< of the whole phase, >= 1
  long warmup = 0;               ///< < steps
  std::vector<long> milestones;  ///< step: multiply by gamma from each of these on
  double gamma = 0.1;
};

/// The recipe's schedule for an epoch of `steps_per_epoch` steps. Throws Error(usage) for an unknown name or a warm-up
/// that is longer than the phase.
Schedule make_schedule(const OptimizerRecipe& recipe, long steps_per_epoch);

/// Learning rate of step s in [0, steps). During warm-up, for s < warmup: peak * (s + 1) / warmup. Then
///   constant   peak
///   step       peak * gamma^(number of milestones <= s)
///   cosine     peak / 2 * (1 + cos(pi * (s - warmup) / (steps - warmup)))           (Loshchilov & Hutter 2017, eq. 5)
///   one_cycle  a straight line up from peak / 25 to peak over the warm-up (30 % of the steps when the recipe has
///   none),
///              then a straight line down to 0 at `steps` (after Smith 2018, "A disciplined approach", section 4.2;
///              momentum stays as it is)
/// Worked: cosine, peak 0.1, 110 steps, 10 of warm-up: s=0 0.01; s=9 0.1; s=10 0.1; s=60 0.05; s=109 2.467e-05.
double learning_rate(const Schedule& schedule, long step);

}  // namespace octet
