#include "trainers/run/runaway_loss.h"

#include <fmt/core.h>

#include <algorithm>

namespace octet {
namespace {

/// Loss of a network that learns falls or scatters a little; one that is lost is near ln(classes). A small loss may
/// double in an epoch that is only unlucky: hence the margin.
constexpr double kTimes = 2, kMargin = 0.5;

bool ran_away(const EpochMetrics& epoch, double least) { return epoch.train_cross_entropy > kTimes * least + kMargin; }

}  // namespace

std::string runaway_loss(const std::vector<EpochMetrics>& all, const Recipe& recipe, std::optional<double> first) {
  std::vector<EpochMetrics> epochs = all;
  std::erase_if(epochs, [&](const EpochMetrics& epoch) { return epoch.phase != all.back().phase; });
  const EpochMetrics& now = epochs.back();
  const std::string key = fmt::format("{}.learning_rate", now.phase == "float" ? "train" : "qat");
  if (epochs.size() == 1 && first && ran_away(now, *first))
    return fmt::format("warning: {}: the loss was {:.3f} in the first step and is {:.3f} in epoch {}; lower {}",
                       now.phase, *first, now.train_cross_entropy, now.epoch, key);
  if (epochs.size() < 2) return "";
  const auto least = std::min_element(epochs.begin(), epochs.end() - 1, [](const auto& a, const auto& b) {
    return a.train_cross_entropy < b.train_cross_entropy;
  });
  if (!ran_away(now, least->train_cross_entropy) || ran_away(epochs.end()[-2], least->train_cross_entropy)) return "";
  std::string cure = "lower " + key;
  const int frozen_from = static_cast<int>(recipe.qat.freeze_batch_norm * recipe.qat.epochs) + 1;
  if (now.phase != "float" && now.epoch >= frozen_from)
    cure += fmt::format(
        ", or let BatchNorm's statistics follow for longer: they stay from epoch {} on (qat.freeze_batch_norm {:g})",
        frozen_from, recipe.qat.freeze_batch_norm);
  return fmt::format("warning: {}: the loss was {:.3f} in epoch {} and is {:.3f} in epoch {}; {}", now.phase,
                     least->train_cross_entropy, least->epoch, now.train_cross_entropy, now.epoch, cure);
}

}  // namespace octet
