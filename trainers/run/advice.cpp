// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/advice.h"

#include <fmt/core.h>

#include <cmath>

namespace octet {
namespace {

// Measured: tools/lab/notebooks/recipes.md, "The rate of QAT that nobody set".
constexpr double kQatSgd = 0.005, kSgdFewBits = 0.01, kSgdFolded = 0.0005, kQatAdamw = 1e-4, kAdamwFolded = 1e-5;
constexpr double kOfFloat = 0.1;  // upper limit, as a share of the float phase's peak rate

/// The loss of a network that learns falls or scatters a little; that of a lost one is near ln(classes). A small loss
/// may double in an unlucky epoch, hence the margin.
constexpr double kGrowth = 2, kMargin = 0.5;

bool diverges(const EpochMetrics& epoch, double best) { return epoch.train_cross_entropy > kGrowth * best + kMargin; }

}  // namespace

QatRate qat_rate(const Recipe& recipe, const Graph& graph, double float_rate) {
  if (recipe.qat.learning_rate > 0) return {recipe.qat.learning_rate, ""};
  const bool normalized =
      std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return node.op == Op::batch_norm; });
  const bool adamw = recipe.qat.optimizer == OptimizerKind::adamw;
  const bool few_bits = std::min(recipe.quant.weight_bits, recipe.quant.activation_bits) < 8;
  QatRate chosen;
  if (normalized) {
    chosen = {adamw ? kQatAdamw : few_bits ? kSgdFewBits : kQatSgd, "as suits a trained network with BatchNorm"};
  } else {
    chosen = {adamw ? kAdamwFolded : kSgdFolded, "as suits a trained network without BatchNorm, or with it folded"};
  }
  const bool was_trained = recipe.train.epochs > 0 && recipe.train.optimizer == recipe.qat.optimizer;
  if (const double limit = kOfFloat * float_rate; was_trained && limit < chosen.rate)
    chosen = {limit, "a tenth of train.learning_rate"};
  return chosen;
}

std::string untrained_note(const Recipe& recipe) {
  if (recipe.train.epochs > 0 || recipe.qat.epochs > 0) return "";
  return "note: nothing is trained, since train.epochs and qat.epochs are 0: the network is calibrated as it is; "
         "--set qat.epochs=3 trains it on with its int8 codes";
}

std::string chance_note(const Evaluation& network, bool was_trained) {
  constexpr double kDeviations = 1.96;
  const double classes = network.task.classes();
  if (network.task.labels != Labels::image || network.images == 0 || classes < 2) return "";
  const double by_chance = 1 / classes;
  const double scatter = std::sqrt(by_chance * (1 - by_chance) / static_cast<double>(network.images));
  if (network.top1 > by_chance + kDeviations * scatter) return "";
  return fmt::format(
      "{} is right on {:.2f} % of {} images, no more than by chance with {:g} classes, so these numbers do not tell "
      "what int8 costs: {}, model.weights takes weights that are trained, and data must be as they were trained with",
      network.name, 100 * network.top1, network.images, classes,
      was_trained ? "more of train.epochs or another train.learning_rate may help" : "train.epochs trains it");
}

std::string runaway_loss(const std::vector<EpochMetrics>& all, const Recipe& recipe, std::optional<double> first) {
  std::vector<EpochMetrics> epochs = all;
  std::erase_if(epochs, [&](const EpochMetrics& epoch) { return epoch.phase != all.back().phase; });
  const EpochMetrics& now = epochs.back();
  const std::string key = fmt::format("{}.learning_rate", now.phase == "float" ? "train" : "qat");
  if (epochs.size() == 1 && first && diverges(now, *first))
    return fmt::format("warning: {}: the loss was {:.3f} in the first step and is {:.3f} in epoch {}; lower {}",
                       now.phase, *first, now.train_cross_entropy, now.epoch, key);
  if (epochs.size() < 2) return "";
  const auto best = std::min_element(epochs.begin(), epochs.end() - 1, [](const auto& a, const auto& b) {
    return a.train_cross_entropy < b.train_cross_entropy;
  });
  if (!diverges(now, best->train_cross_entropy) || diverges(epochs.end()[-2], best->train_cross_entropy)) return "";
  std::string cure = "lower " + key;
  const int frozen_from = static_cast<int>(recipe.qat.freeze_batch_norm * recipe.qat.epochs) + 1;
  if (now.phase != "float" && now.epoch >= frozen_from)
    cure += fmt::format(
        ", or let BatchNorm's statistics follow for longer: they stay from epoch {} on (qat.freeze_batch_norm {:g})",
        frozen_from, recipe.qat.freeze_batch_norm);
  return fmt::format("warning: {}: the loss was {:.3f} in epoch {} and is {:.3f} in epoch {}; {}", now.phase,
                     best->train_cross_entropy, best->epoch, now.train_cross_entropy, now.epoch, cure);
}

std::string qat_precision_note(Precision precision) {
  if (precision == Precision::fp32) return "";
  const bool bf16 = precision == Precision::bf16;
  return fmt::format(
      "qat: precision {} rounds what convolutions give before it is quantized: {} of an edge's values get another code "
      "than fp32, and the exported network, give them; {}",
      bf16 ? "bf16" : "fp16", bf16 ? "3 to 20 %" : "0.3 to 3 %",
      bf16 ? "fp16 (GPU) or fp32 trains nearer to what is deployed" : "fp32 has none of that");
}

std::string cpu_precision_note(const std::string& phase, Precision precision) {
  if (precision != Precision::fp16) return "";
  return fmt::format(
      "{}: precision fp16 on a CPU: ResNet-20 trained 13 times slower so than in fp32 (27 and 354 images/s, AMD EPYC); "
      "--set {}.precision=fp32 is faster, and so is bf16 where the CPU has AVX512-BF16",
      phase, phase);
}

}  // namespace octet
