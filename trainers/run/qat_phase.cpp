// SPDX-License-Identifier: Apache-2.0
// The QAT phase. What octet chose of it chooses itself anew where the beginning of the training shows that it ruins the
// network.
#include <fmt/format.h>

#include <map>
#include <optional>

#include "src/base/progress.h"
#include "src/quant/plan.h"
#include "src/train/model/device.h"
#include "trainers/loop/optimizer.h"
#include "trainers/loop/step.h"
#include "trainers/run/advice.h"
#include "trainers/run/phases.h"
#include "trainers/run/pipeline.h"
#include "trainers/run/qat_start.h"

namespace octet {
namespace {

using State = std::map<std::string, at::Tensor>;

State state_of(const QuantizedModel& model) {
  State state;
  for (const auto& [name, tensor] : model.state()) state.emplace(name, to_host(tensor).clone());
  return state;
}

/// Sets what QAT begins with: its own rate and when statistics and ranges stay.
void set_phase(const Run& run, const QatStart& start, QatRecipe& recipe, Phase& phase) {
  constexpr double kCareful = 0.1;  // at the weights' rate scales of four bits diverge in some networks
  recipe.learning_rate = qat_rate(run).rate;
  if (recipe.scale_learning_rate > 0)
    phase.scale_rate = recipe.scale_learning_rate / recipe.learning_rate;
  else if (!run.recipe.quant.scales)
    phase.scale_rate = kCareful;
  phase.freeze_batch_norm = start.freeze_batch_norm;
  phase.freeze_observers = start.scales == EdgeScales::observed ? recipe.freeze_observers : 0;
}

/// Returns qat_ruin() of an epoch.
std::string ruin_of(const Run& run, const QatRecipe& recipe, long steps, const EpochResult& epoch) {
  return qat_ruin(epoch, recipe, steps, run.data.task(), [&] {
    const Weights weights = load_float(run);
    return validated(run, "float", *float_program(run.graph, weights, run.preprocessing));
  });
}

/// Trains QAT. While its beginning is ruined it begins again: with BatchNorm's statistics, and the calibrated ranges
/// that fit them, from the first step on; then at lower rates. Neither where the recipe sets it. recipe: that of the
/// phase, whose rate it sets; calibrated: the model's state before `start`.
void train_at_own_choices(Run& run, Phase& phase, QuantizedModel& model, QatRecipe& recipe, const State& calibrated,
                          QatStart& start) {
  const bool may_keep = may_keep_statistics(run, model);
  const auto keeps_statistics = [&] { return may_keep && start.freeze_batch_norm > 0; };
  const auto lower = [&] { return lower_share(run.recipe, run.qat_share); };
  const auto may_begin_again = [&] { return keeps_statistics() || lower(); };
  Weights beginning;
  State state;
  if (may_begin_again()) {
    beginning = copies_of(*phase.weights, at::kCPU);  // a GPU's memory is for training
    state = state_of(model);
  }
  const long steps = steps_per_epoch(recipe, run.data.train.size(), phase.name);
  phase.epoch_done = [&](const EpochResult& result) {
    std::string what = ruin_of(run, recipe, steps, result);
    if (!what.empty() && may_begin_again()) throw Ruined(what);
    if (!what.empty()) what = fmt::format("warning: qat: {}; lower qat.learning_rate", what);
    finish_epoch(
        run, phase, result, [&] { return qat_graph_program(model, run.preprocessing); }, what);
  };
  for (;;) {
    set_phase(run, start, recipe, phase);
    const std::string why =
        ruined_in([&] { train_phase(phase, run.data); }, qat_beginning(recipe, steps), may_begin_again());
    if (why.empty()) return;
    give_up(run, phase, beginning);
    if (keeps_statistics()) {
      keep_statistics(run, start, why);
      state = calibrated;
    } else {
      run.qat_share = *lower();
      start.notes.push_back(lower_rate_note("qat", recipe.learning_rate, why, qat_rate(run).rate));
      if (run.writes()) keep_qat_share(run.directory, run.qat_share);
    }
    say(start.notes.back());
    if (run.writes()) keep_qat_start(run.directory, start);
    model.load_state(state);
  }
}

}  // namespace

Teacher float_teacher(const Run& run, const Weights& weights) {
  const QatRecipe& qat = run.recipe.qat;
  const bool repaired = run.recipe.calibrate.bias_correction;  // of a network that does not answer as the float one
  return make_teacher(fuse(repaired ? run.graph : quantized_graph(run, weights)), repaired ? load_float(run) : weights,
                      qat.distill_weight, qat.distill_temperature);
}

QatStart train_qat(Run& run, QuantizedModel& model, bool resume, const std::function<bool()>& stop,
                   std::optional<double> lost) {
  const QatRate rate = qat_rate(run);
  QatRecipe recipe = run.recipe.qat;
  if (recipe.epochs == 0) return {};
  if (!rate.why.empty()) say(fmt::format("qat.learning_rate: {:g}, {} (the recipe sets none)", rate.rate, rate.why));
  if (const std::string note = qat_precision_note(recipe.precision); !note.empty()) say(note);
  say_what_it_costs(run, "qat", recipe.precision);
  Weights weights = model.weights();  // the same tensors
  const Graph graph = quantized_graph(run, weights);
  Phase phase = phase_of(run, "qat", recipe, graph, weights);
  phase.quantized = &model;
  std::optional<Teacher> teacher;
  if (recipe.distill_weight > 0) {
    phase.teacher = &teacher.emplace(float_teacher(run, weights));
  }
  const State calibrated = state_of(model);
  QatStart start = start_qat(run, model, lost, resume ? kept_qat_start(run.directory) : std::nullopt);
  if (run.writes()) keep_qat_start(run.directory, start);
  phase.checkpoint = run.directory.qat_state();
  phase.resume = resume;
  phase.stop = stop;
  train_at_own_choices(run, phase, model, recipe, calibrated, start);
  return start;
}

}  // namespace octet
