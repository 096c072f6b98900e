// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/advice.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <span>
#include <system_error>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/text.h"
#include "trainers/loop/train.h"

namespace octet {
namespace {

constexpr double kSgd = 0.1, kSgdOfDetectors = 0.01, kAdamw = 0.001;
constexpr double kShares[] = {1, 0.3, 0.1, 0.03, 0.01};  // of the first rate, one after the other
constexpr double kWarmup = 1, kWarmupShare = 0.25;       // epochs; of the phase at most
constexpr double kWorseThanChance = 2;                   // times; a training that learns slowly is near 1
constexpr double kTimes = 2;
constexpr double kQatShares[] = {1, 0.3, 0.1};  // of QAT's own rate

/// Reads a rate, or a share of one, that a run keeps. most: the one that training begins with.
double kept_rate(const std::string& path, double most) {
  if (!std::filesystem::exists(path)) return most;
  const std::string text = read_file(path);
  double rate = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rate);
  if (error != std::errc() || !(rate > 0 && rate <= most))
    throw data_error(fmt::format("{}: no learning rate up to {:g}; remove it and begin anew", path, most));
  return rate;
}

void keep_rate(const std::string& path, double rate) { write_file_atomically(path, fmt::format("{}\n", rate)); }

/// Returns the first of `shares` of `first` that lies below `rate`, or nothing.
std::optional<double> next_lower(std::span<const double> shares, double first, double rate) {
  constexpr double kBelow = 0.99;  // rates are products, and so not exact
  const auto next =
      std::find_if(shares.begin(), shares.end(), [&](double share) { return share * first < kBelow * rate; });
  if (next == shares.end()) return std::nullopt;
  return *next * first;
}

}  // namespace

double first_float_rate(const Recipe& recipe) {
  if (recipe.train.learning_rate > 0) return recipe.train.learning_rate;
  if (recipe.train.optimizer == OptimizerKind::adamw) return kAdamw;
  return recipe.data.labels == Labels::boxes ? kSgdOfDetectors : kSgd;
}

double float_rate(const Recipe& recipe, const RunDirectory& directory) {
  const double first = first_float_rate(recipe);
  return recipe.train.learning_rate > 0 ? first : kept_rate(directory.float_rate(), first);
}

void keep_float_rate(const RunDirectory& directory, double rate) { keep_rate(directory.float_rate(), rate); }

std::optional<double> lower_rate(const Recipe& recipe, double rate) {
  return next_lower(kShares, first_float_rate(recipe), rate);
}

double qat_share(const Recipe& recipe, const RunDirectory& directory) {
  return recipe.qat.learning_rate > 0 ? 1 : kept_rate(directory.qat_share(), 1);
}

void keep_qat_share(const RunDirectory& directory, double share) { keep_rate(directory.qat_share(), share); }

std::optional<double> lower_share(const Recipe& recipe, double share) {
  return recipe.qat.learning_rate > 0 ? std::nullopt : next_lower(kQatShares, 1, share);
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

namespace {

// Measured: tools/lab/notebooks/recipes.md, "The rate of QAT that nobody set".
constexpr double kQatSgd = 0.005, kSgdFewBits = 0.01, kSgdFolded = 0.0005, kQatAdamw = 1e-4, kAdamwFolded = 1e-5;
constexpr double kOfFloat = 0.1;  // upper limit, as a share of the float phase's peak rate

/// The loss of a network that learns falls or scatters a little; that of a lost one is near ln(classes). A small loss
/// may double in an unlucky epoch, hence the margin.
constexpr double kDivergence = 2, kMargin = 0.5;

/// Returns the step, from 0, in whose epoch QAT is judged.
long judged_step(const OptimizerRecipe& recipe, long steps) {
  constexpr long kSteps = 100;  // a network that learns is below chance by then
  return std::lround(recipe.warmup_epochs * static_cast<double>(steps)) + kSteps - 1;
}

bool diverges(const EpochMetrics& epoch, double best) {
  return epoch.train_cross_entropy > kDivergence * best + kMargin;
}

}  // namespace

int qat_beginning(const OptimizerRecipe& recipe, long steps) {
  const long last = judged_step(recipe, steps) / steps;
  return static_cast<int>(2 * last < recipe.epochs ? last : 0);
}

std::string qat_ruin(const EpochResult& epoch, const OptimizerRecipe& recipe, long steps, const Task& task,
                     const std::function<Evaluation()>& float_network) {
  constexpr double kAtChance = 0.98;  // of the loss that answers by chance have
  constexpr double kLittle = 0.1;
  const bool judged =
      epoch.epoch == qat_beginning(recipe, steps) && judged_step(recipe, steps) < (epoch.epoch + 1) * steps;
  if (!judged || task.labels != Labels::image || task.classes() < 2) return "";
  const double by_chance = 1.0 / task.classes(), chance_loss = std::log(task.classes());
  if (epoch.train_cross_entropy < kAtChance * chance_loss) return "";
  const Evaluation known = float_network();
  if (!chance_note(known, true).empty() || epoch.train_top1 - by_chance > kLittle * (known.top1 - by_chance)) return "";
  return fmt::format("the loss is {:.3f} in epoch {}, by chance it would be {:.3f}", epoch.train_cross_entropy,
                     epoch.epoch + 1, chance_loss);
}

QatRate qat_rate(const Recipe& recipe, const Graph& graph, double float_rate) {
  if (recipe.qat.learning_rate > 0) return {recipe.qat.learning_rate, ""};
  const bool adamw = recipe.qat.optimizer == OptimizerKind::adamw;
  const bool few_bits = std::min(recipe.quant.weight_bits, recipe.quant.activation_bits) < 8;
  QatRate chosen;
  if (has_batch_norm(graph)) {
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

std::string silence_note(const std::vector<OutputError>& outputs, size_t images) {
  constexpr double kMany = 0.25;  // of the images: noise alone may make so much of the mean
  constexpr size_t kFew = 5;      // of fewer, the one whose value is the median is a quarter
  const auto worst = std::max_element(outputs.begin(), outputs.end(),
                                      [](const OutputError& a, const OutputError& b) { return a.silent < b.silent; });
  if (images < kFew || static_cast<double>(worst->silent) < kMany * static_cast<double>(images)) return "";
  return fmt::format(
      "output '{}' says nothing on {} of {} images, where none of its values lies a code of eight bits, 1/255 of the "
      "largest, from the median: what is lost there is noise beside no signal, so give images like those that the "
      "network will see",
      printable(worst->name), worst->silent, images);
}

std::string runaway_loss(const std::vector<EpochMetrics>& of_phases, int all, double freeze_batch_norm,
                         std::optional<double> first) {
  std::vector<EpochMetrics> epochs = of_phases;
  std::erase_if(epochs, [&](const EpochMetrics& epoch) { return epoch.phase != of_phases.back().phase; });
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
  const int frozen_from = static_cast<int>(freeze_batch_norm * all) + 1;
  if (now.phase != "float" && freeze_batch_norm > 0 && now.epoch >= frozen_from)
    cure += fmt::format(
        ", or let BatchNorm's statistics follow for longer: they stay from epoch {} on (qat.freeze_batch_norm {:g})",
        frozen_from, freeze_batch_norm);
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
