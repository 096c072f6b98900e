// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/qat_start.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <exception>
#include <filesystem>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/json.h"
#include "src/base/names.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "trainers/loop/train.h"
#include "trainers/run/auto_ranges.h"
#include "trainers/run/in_training.h"

namespace octet {
namespace {

/// The share of its outputs that a network may lose to ranges before octet asks what loses less: one that loses so much
/// is a point or two worse calibrated only.
constexpr double kMuchLost = 0.02;

/// The share that a batch may lose to ranges that learn: up to there they end better as calibrated, and with statistics
/// that follow, than in any other way that was tried (tools/lab/defaults/README.md).
constexpr double kLearnable = 1.0 / 3;

/// Returns the share of the outputs that the calibrated model loses; lost: that, once it is known.
double as_calibrated(const Run& run, QuantizedModel& model, std::optional<double>& lost) {
  if (!lost) lost = of_first(run, model, HeldBack(model, run).lost(model));
  return *lost;
}

/// Returns the share of its outputs that a batch loses to the model's ranges in training, with BatchNorm's statistics
/// of each batch or, where these stay, the running ones; empty: there is no batch to ask.
std::optional<double> lost_of_batch(const Run& run, const QuantizedModel& model, bool batch_statistics = true) {
  const std::optional<InTraining> seen = in_training(model, run, batch_statistics);
  if (!seen) return std::nullopt;
  return seen->lost;
}

/// Returns whether the ranges of activations are to follow the data; otherwise they stay as calibrated, or learn.
/// quant.scales auto: where the calibrated ones lose much, and a batch loses less with ranges that follow: these reach
/// about from its least value to its greatest, which may lose more than what calibration found.
bool observes(const Run& run, QuantizedModel& model, std::optional<double>& lost, std::optional<double> of_batch,
              QatStart& start) {
  if (run.recipe.quant.scales || edge_scales(run) != EdgeScales::observed)
    return run.recipe.quant.scales == EdgeScales::observed;
  if (!model.has_scales()) return true;  // never calibrated: there is nothing to keep
  const auto choose = [&](bool follow, const std::string& why) {
    const EdgeScales scales = follow ? EdgeScales::observed : EdgeScales::fixed;
    start.notes.push_back(fmt::format("quant.scales auto: {}: {}", name_in(kEdgeScales, scales), why));
    return follow;
  };
  const double share = as_calibrated(run, model, lost);
  const std::string why = fmt::format("as calibrated {} of the outputs are lost, {} {}", percent(share),
                                      share > kMuchLost ? "more than" : "within", percent(kMuchLost));
  if (!(share > kMuchLost)) return choose(false, why);
  const bool batch_statistics = start.freeze_batch_norm > 0;
  if (!of_batch) of_batch = lost_of_batch(run, model, batch_statistics);
  if (!of_batch) return choose(true, why + ", and the calibration images are too few to ask what a batch loses");
  const QuantizedModel following =
      after_batches(run, model, {.batch_norm_training = batch_statistics, .observe = true});
  const double observed = lost_of_batch(run, following, batch_statistics).value();
  return choose(
      observed < *of_batch,
      fmt::format("{}; a training batch loses {} with the calibrated ranges, {} with ranges that follow the data", why,
                  percent(*of_batch), percent(observed)));
}

/// Returns whether a network has running statistics of BatchNorm that images have made: the mean begins at 0.
bool has_statistics(const Graph& graph, const Weights& weights) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return node.op == Op::batch_norm && weights.at(node.name + ".running_mean").ne(0).any().item<bool>();
  });
}

/// Returns what ranges do where statistics stay.
const char* calibrated_ranges(const Run& run) {
  return learn(edge_scales(run)) ? "begin as calibrated" : "as calibrated";
}

const char* spared_nothing(const Run& run) {
  return run.recipe.qat.recompute ? "; qat.recompute spares nothing then" : "";
}

/// Sets from which share of the steps on BatchNorm's statistics stay. qat.freeze_batch_norm auto: from the first step,
/// where the calibrated ranges lose much of what BatchNorm makes of a batch and twice as much as of what it makes with
/// the running statistics: they were found with these. A network that explodes on a few images has others in each
/// batch, and ranges that follow these ruin it. Statistics that are not those of the images (a short float phase has
/// not made them yet: the network's outputs are others in a batch) do not stay while the training bears that:
/// start.stale is set. of_batch: what a batch loses with the calibrated ranges, once it is known.
void set_freeze(const Run& run, QuantizedModel& model, std::optional<double>& lost, std::optional<double>& of_batch,
                QatStart& start) {
  if (run.recipe.qat.freeze_batch_norm) {
    start.freeze_batch_norm = *run.recipe.qat.freeze_batch_norm;
    return;
  }
  constexpr double kTimes = 2;
  constexpr double kStale = 0.25;  // networks that were trained for epochs move by 5 to 12 %
  if (!may_keep_statistics(run, model)) return;
  const std::optional<InTraining> seen = in_training(model, run);
  if (!seen) return;
  of_batch = seen->lost;
  const double moved = seen->moved;
  if (!(*of_batch > (learn(edge_scales(run)) ? kLearnable : kMuchLost))) return;
  start.stale = !(moved <= kStale);
  if (start.stale) {
    start.notes.push_back(fmt::format(
        "qat.freeze_batch_norm auto: {}: with BatchNorm's statistics of each batch the float network's own outputs "
        "differ by {}: the running ones are not those of these images",
        kUsualFreeze, percent(moved)));
    return;
  }
  const double running = as_calibrated(run, model, lost);
  if (!(*of_batch > kTimes * running)) return;
  start.notes.push_back(fmt::format(
      "qat.freeze_batch_norm auto: 0, ranges {}: with BatchNorm's statistics of each batch {} of the outputs are lost, "
      "{} with the running ones (without quantization they differ by {}){}",
      calibrated_ranges(run), percent(*of_batch), percent(running), percent(moved), spared_nothing(run)));
  start.freeze_batch_norm = 0;
  start.froze = true;
}

/// Sets the ranges to those of the values that training sees, with BatchNorm's statistics of each batch. Those of
/// evaluation, which calibration saw, may be a thousand times as wide: a moving average takes hundreds of steps, in the
/// first of which all values of a layer may get one code.
void start_moving_ranges(const Run& run, QuantizedModel& model) {
  const CalibrateRecipe& recipe = run.recipe.calibrate;
  QuantizedModel seen = after_batches(run, model, {.batch_norm_training = true, .observe = true, .quantize = false});
  seen.calibrate(recipe.method.value_or(CalibrationMethod::mse), recipe.percentile);
  model.set_edges(seen.edges());
  if (run.ranks) take_from_first(*run.ranks, model.weights(), &model);
}

/// Ranges that learn begin as calibrated: those were found together, by what all of them lose of the outputs, and
/// gradients take them on from there. A scale that is ten times too wide hardly moves, though: where a batch loses more
/// than a third of its outputs so, they begin at the values that training sees, if it loses less with them. of_batch:
/// what it loses with the calibrated ones, if that is known.
void start_learned_ranges(const Run& run, QuantizedModel& model, std::optional<double> of_batch,
                          std::vector<std::string>& notes) {
  if (!of_batch) of_batch = lost_of_batch(run, model);
  if (!(of_batch > kLearnable)) return;
  const std::vector<QParams> edges = model.edges();
  start_moving_ranges(run, model);
  const double moved = lost_of_batch(run, model).value();
  if (moved < *of_batch)
    notes.push_back(
        fmt::format("quant.scales auto: ranges begin at the values that training sees: with the calibrated ones a "
                    "batch loses {} of its outputs, with these {}",
                    percent(*of_batch), percent(moved)));
  else
    model.set_edges(edges);
}

}  // namespace

bool may_keep_statistics(const Run& run, const QuantizedModel& model) {
  const bool follows = run.recipe.quant.scales == EdgeScales::observed;
  return !run.recipe.qat.freeze_batch_norm && !follows && model.has_scales() && run.recipe.parallel.stages.empty() &&
         has_statistics(run.graph, model.weights());
}

void keep_statistics(const Run& run, QatStart& start, const std::string& why) {
  if (start.scales == EdgeScales::observed) start.scales = EdgeScales::fixed;
  start.freeze_batch_norm = 0;
  start.froze = start.ruined = true;
  start.stale = false;
  start.notes.push_back(
      fmt::format("qat.freeze_batch_norm auto: 0, ranges {}: with BatchNorm's statistics of each batch the training is "
                  "ruined, so it begins again{}: {}",
                  calibrated_ranges(run), spared_nothing(run), why));
}

std::optional<QatStart> kept_qat_start(const RunDirectory& directory) {
  const std::string path = directory.qat_start();
  if (!std::filesystem::exists(path)) return std::nullopt;
  try {
    const nlohmann::json kept = parse_json(read_file(path), path);
    const std::string scales = kept.at("scales");
    const double freeze = kept.at("freeze_batch_norm");
    if (!(freeze >= 0 && freeze <= 1)) throw data_error("no share of the steps");
    return QatStart{.scales = value_named(kEdgeScales, scales, path),
                    .freeze_batch_norm = freeze,
                    .froze = kept.at("froze"),
                    .stale = kept.at("stale"),
                    .ruined = kept.value("ruined", false),
                    .notes = kept.at("notes")};
  } catch (const std::exception&) {
    throw data_error(fmt::format("{}: not what octet wrote when QAT began; remove it, and auto chooses anew", path));
  }
}

void keep_qat_start(const RunDirectory& directory, const QatStart& start) {
  const nlohmann::json kept = {{"scales", name_in(kEdgeScales, start.scales)},
                               {"freeze_batch_norm", start.freeze_batch_norm},
                               {"froze", start.froze},
                               {"stale", start.stale},
                               {"ruined", start.ruined},
                               {"notes", start.notes}};
  write_file_atomically(directory.qat_start(), kept.dump(1) + "\n");
}

QatStart start_qat(const Run& run, QuantizedModel& model, std::optional<double> lost,
                   const std::optional<QatStart>& kept) {
  QatStart start;
  std::optional<double> of_batch;
  const bool chooses = !run.recipe.quant.scales;
  if (kept) {
    start = *kept;
  } else {
    if (lost) lost = of_first(run, model, *lost);
    start.scales = edge_scales(run);
    if (chooses && learn(start.scales))
      start.notes.push_back(fmt::format("quant.scales auto: {}: activations have {} bits",
                                        name_in(kEdgeScales, start.scales), run.recipe.quant.least_activation_bits()));
    set_freeze(run, model, lost, of_batch, start);
    if (start.stale && chooses && start.scales == EdgeScales::observed)
      start.notes.push_back("quant.scales auto: observed: what was calibrated is of those statistics");
    else if (!learn(start.scales))
      start.scales =
          !start.froze && observes(run, model, lost, of_batch, start) ? EdgeScales::observed : EdgeScales::fixed;
  }
  // Where nothing normalizes by the batch, training sees what calibration saw. A training that goes on has them in its
  // state; from here it begins again where its rate ruins it.
  if (chooses && model.has_scales() && has_batch_norm(run.graph) && start.freeze_batch_norm > 0) {
    if (start.scales == EdgeScales::observed)
      start_moving_ranges(run, model);
    else if (learn(start.scales))
      start_learned_ranges(run, model, of_batch, start.notes);
  }
  if (kept) start.notes = kept->notes;  // how the ranges began is among them
  for (const std::string& note : start.notes) say(note);
  return start;
}

}  // namespace octet
