// SPDX-License-Identifier: Apache-2.0
#include "trainers/loop/schedule.h"

#include <fmt/core.h>

#include <numbers>

#include "src/base/error.h"
#include "src/base/random.h"

namespace octet {
namespace {

constexpr double kOneCycleStart = 1.0 / 25;  // of the peak
constexpr double kOneCycleWarmupShare = 0.3;
constexpr double kYoloxLowest = 1.0 / 20;  // of the peak

}  // namespace

long steps_per_epoch(const OptimizerRecipe& recipe, size_t images, const std::string& phase) {
  const long steps = static_cast<long>(images) / recipe.batch_size;
  if (steps == 0) {
    throw usage_error(fmt::format("{}: batch_size {} is more than the {} training images; use a smaller batch", phase,
                                  recipe.batch_size, images));
  }
  return steps;
}

uint64_t step_seed(uint64_t seed, const std::string& phase, int epoch, long step) {
  uint64_t mixed = split_mix(seed);
  for (const char letter : phase) mixed = split_mix(mixed ^ static_cast<uint64_t>(letter));
  mixed = split_mix(mixed ^ static_cast<uint64_t>(epoch));
  return split_mix(mixed ^ static_cast<uint64_t>(step));
}

Schedule make_schedule(const OptimizerRecipe& recipe, long steps_per_epoch, int last_epochs) {
  Schedule schedule;
  schedule.kind = recipe.schedule;
  schedule.peak = recipe.learning_rate;
  schedule.steps = std::max(1L, recipe.epochs * steps_per_epoch);
  schedule.warmup = std::lround(recipe.warmup_epochs * static_cast<double>(steps_per_epoch));
  schedule.gamma = recipe.gamma;
  for (int epoch : recipe.milestones) schedule.milestones.push_back(epoch * steps_per_epoch);
  if (schedule.kind == ScheduleKind::one_cycle && schedule.warmup == 0) {
    schedule.warmup = std::lround(kOneCycleWarmupShare * static_cast<double>(schedule.steps));
  }
  const bool ends = schedule.kind == ScheduleKind::yolox && last_epochs < recipe.epochs;
  if (ends) schedule.last = last_epochs * steps_per_epoch;
  if (schedule.warmup >= schedule.steps - schedule.last && schedule.warmup > 0) {
    throw usage_error(fmt::format("warmup_epochs: {} leaves nothing of {} epochs{}; use fewer", recipe.warmup_epochs,
                                  recipe.epochs,
                                  ends ? fmt::format(" without the last {} (data.mosaic_off)", last_epochs) : ""));
  }
  return schedule;
}

double learning_rate(const Schedule& schedule, long step) {
  const auto s = static_cast<double>(step), warmup = static_cast<double>(schedule.warmup);
  const auto steps = static_cast<double>(schedule.steps);
  const bool one_cycle = schedule.kind == ScheduleKind::one_cycle;
  if (step < schedule.warmup) {
    if (schedule.kind == ScheduleKind::yolox) return schedule.peak * (s / warmup) * (s / warmup);
    if (one_cycle) return schedule.peak * (kOneCycleStart + (1 - kOneCycleStart) * s / warmup);
    return schedule.peak * (s + 1) / warmup;
  }
  const double done = (s - warmup) / (steps - warmup);
  switch (schedule.kind) {
    case ScheduleKind::constant:
      return schedule.peak;
    case ScheduleKind::step: {
      const auto passed = std::count_if(schedule.milestones.begin(), schedule.milestones.end(),
                                        [&](long milestone) { return milestone <= step; });
      return schedule.peak * std::pow(schedule.gamma, static_cast<double>(passed));
    }
    case ScheduleKind::cosine:
      return schedule.peak / 2 * (1 + std::cos(std::numbers::pi * done));
    case ScheduleKind::yolox: {
      const double low = kYoloxLowest * schedule.peak, all = steps - static_cast<double>(schedule.last) - warmup;
      return low + (schedule.peak - low) / 2 * (1 + std::cos(std::numbers::pi * std::min(1.0, (s - warmup) / all)));
    }
    case ScheduleKind::one_cycle:
      return schedule.peak * (1 - done);
  }
  throw usage_error("schedule: unknown kind");
}

}  // namespace octet
