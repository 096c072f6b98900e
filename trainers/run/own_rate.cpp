// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/own_rate.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "src/base/error.h"
#include "src/base/files.h"

namespace octet {
namespace {

constexpr double kSgd = 0.1, kSgdOfDetectors = 0.01, kAdamw = 0.001;
constexpr double kShares[] = {1, 0.3, 0.1, 0.03, 0.01};  // of the first rate, one after the other
constexpr double kWarmup = 1, kWarmupShare = 0.25;       // epochs; of the phase at most
constexpr double kWorseThanChance = 2;                   // times; a training that learns slowly is near 1
constexpr double kTimes = 2;

}  // namespace

double first_float_rate(const Recipe& recipe) {
  if (recipe.train.learning_rate > 0) return recipe.train.learning_rate;
  if (recipe.train.optimizer == OptimizerKind::adamw) return kAdamw;
  return recipe.data.labels == Labels::boxes ? kSgdOfDetectors : kSgd;
}

double float_rate(const Recipe& recipe, const RunDirectory& directory) {
  const double first = first_float_rate(recipe);
  if (recipe.train.learning_rate > 0 || !std::filesystem::exists(directory.float_rate())) return first;
  const std::string text = read_file(directory.float_rate());
  double rate = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rate);
  if (error != std::errc() || !(rate > 0 && rate <= first))
    throw data_error(
        fmt::format("{}: no learning rate up to {:g}; remove it and begin anew", directory.float_rate(), first));
  return rate;
}

void keep_float_rate(const RunDirectory& directory, double rate) {
  write_file_atomically(directory.float_rate(), fmt::format("{}\n", rate));
}

std::optional<double> lower_rate(const Recipe& recipe, double rate) {
  const double first = first_float_rate(recipe);
  constexpr double kBelow = 0.99;  // rates are products, and so not exact
  const auto* const next =
      std::find_if(std::begin(kShares), std::end(kShares), [&](double share) { return share * first < kBelow * rate; });
  if (next == std::end(kShares)) return std::nullopt;
  return *next * first;
}

OptimizerRecipe with_own_rate(const Recipe& recipe, double rate) {
  OptimizerRecipe own = recipe.train;
  own.learning_rate = rate;
  if (own.warmup_epochs > 0 || own.schedule == ScheduleKind::one_cycle) return own;
  const int last = recipe.data.mosaic_off;  // epochs in which yolox's rate stays as it is
  const int falls = own.schedule == ScheduleKind::yolox && last < own.epochs ? own.epochs - last : own.epochs;
  own.warmup_epochs = std::min(kWarmup, kWarmupShare * falls);
  return own;
}

std::string ruin(const EpochResult& epoch, const Task& task) {
  if (epoch.epoch > 0 || !epoch.first_loss) return "";
  const double loss = epoch.train_cross_entropy, first = *epoch.first_loss;
  const bool boxes = task.labels == Labels::boxes;
  const double most = boxes ? kTimes * first : std::max(first, std::log(kWorseThanChance * task.classes()));
  if (!(loss > most)) return "";
  return fmt::format("the loss was {:.3f} in the first step and is {:.3f} in epoch 1", first, loss) +
         (boxes ? "" : fmt::format(", by chance it would be {:.3f}", std::log(task.classes())));
}

}  // namespace octet
