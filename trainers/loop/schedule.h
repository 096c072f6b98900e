// SPDX-License-Identifier: Apache-2.0
// Pure functions of the step number: learning rate, random seed. No LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/recipe/recipe.h"

namespace octet {

/// Returns the number of full batches in an epoch; images beyond them are not trained on in that epoch. Throws
/// Error(usage) if there is not even one full batch.
long steps_per_epoch(const OptimizerRecipe& recipe, size_t images, const std::string& phase);

/// Returns the seed of a step's random numbers: SplitMix64 over the four arguments, so it does not depend on the steps
/// that ran before in this process.
uint64_t step_seed(uint64_t seed, const std::string& phase, int epoch, long step);

/// The course of the learning rate, counted in optimizer steps.
struct Schedule {
  ScheduleKind kind = ScheduleKind::constant;
  double peak = 0.1;             ///< the recipe's learning_rate
  long steps = 1;                ///< of the whole phase, >= 1
  long warmup = 0;               ///< < steps
  std::vector<long> milestones;  ///< the rate is multiplied by gamma at each of these steps
  double gamma = 0.1;
  long last = 0;  ///< kind yolox: steps at the end, in which the rate stays
};

/// Converts the recipe's schedule from epochs to steps. Throws Error(usage) for a warm-up that is longer than the
/// phase. last_epochs: data.mosaic_off, the end of schedule yolox; a phase of no more epochs has no such end.
Schedule make_schedule(const OptimizerRecipe& recipe, long steps_per_epoch, int last_epochs = 0);

/// Returns the learning rate of step s in [0, steps). During warm-up, for s < warmup: peak * (s + 1) / warmup. Then
///   constant   peak
///   step       peak * gamma^(number of milestones <= s)
///   cosine     peak / 2 * (1 + cos(pi * (s - warmup) / (steps - warmup)))           (Loshchilov & Hutter 2017, eq. 5)
///   yolox      (Ge et al. 2021) during warm-up peak * (s / warmup)^2; then with low = peak / 20 and m = steps - last
///              low + (peak - low) / 2 * (1 + cos(pi * (s - warmup) / (m - warmup))), and low for s >= m
///   one_cycle  linear from peak / 25 up to peak over the warm-up (30 % of the steps when the recipe has none), then
///              linear down to 0 at `steps` (after Smith 2018, "A disciplined approach", section 4.2, with constant
///              momentum)
/// Worked: cosine, peak 0.1, 110 steps, 10 of warm-up: s=0 0.01; s=9 0.1; s=10 0.1; s=60 0.05; s=109 2.467e-05.
double learning_rate(const Schedule& schedule, long step);

}  // namespace octet
