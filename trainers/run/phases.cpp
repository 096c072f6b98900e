// SPDX-License-Identifier: Apache-2.0
// Float phase and float control, and what all phases of a run have in common.
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>
#include <optional>

#include "src/base/files.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/base/threads.h"
#include "src/quant/plan.h"
#include "trainers/gpu.h"
#include "trainers/loop/failures.h"
#include "trainers/parallel/stages.h"
#include "trainers/run/advice.h"
#include "trainers/run/phases.h"
#include "trainers/run/pipeline.h"
#include "trainers/run/records.h"

namespace octet {
namespace {

/// Returns a hash of everything that determines the weights: recipe, graph, number of training images.
std::string fingerprint(const Run& run) {
  std::string text = hash_of_changes(training_part(run.recipe)) + fmt::format(" images {}", run.data.train.size());
  for (const ParameterSpec& parameter : parameters(run.graph)) {
    text += " " + parameter.name;
    for (const long extent : parameter.shape) text += fmt::format(",{}", extent);
  }
  return sha256(text);
}

/// Returns a hash of the weights that QAT starts from, which the state of a phase depends on, too.
std::string hash_of(const Weights& weights) {
  std::string bytes;
  for (const auto& [name, values] : float_params(weights)) {
    bytes += name;
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  return sha256(bytes);
}

/// Returns "qat: epoch 3 of 10 is done, about 4 min to go".
std::string progress(const std::string& phase, int epochs, const EpochResult& result) {
  const int left = epochs - result.epoch - 1;
  return fmt::format("{}: epoch {} of {} is done", phase, result.epoch + 1, epochs) +
         (left > 0 ? fmt::format(", about {} to go", human_seconds(left * result.seconds)) : "");
}

/// Returns the metrics of each process; empty if there is only one.
std::vector<RankMetrics> of_all_ranks(const Run& run, const EpochResult& result) {
  if (!run.ranks) return {};
  const int shares = batch_share(run.ranks.get(), run.recipe.parallel.stages).shares;
  const RankMetrics mine{.images_per_second = result.images_per_second / shares,
                         .data_wait_share = result.data_wait_share,
                         .exchange_share = result.exchange_share,
                         .gpu_memory_bytes = static_cast<long>(result.gpu_memory_bytes)};
  std::vector<RankMetrics> all;
  for (const std::vector<RankMetrics>& of_one : run.data.sharing->all(std::vector{mine})) all.push_back(of_one.at(0));
  return all;
}

/// Returns ", 0.9 % waiting, 2.00 GB of GPU memory"; for several processes the value of each: "0.4 / 0.5 %".
std::string costs(const EpochResult& result, const std::vector<RankMetrics>& ranks) {
  const auto each = [&](const char* what, const char* unit, const auto& number) {
    std::vector<std::string> numbers;
    for (const RankMetrics& rank : ranks) numbers.push_back(fmt::format("{:.1f}", number(rank)));
    return fmt::format(", {}{}{}", fmt::join(numbers, " / "), unit, what);
  };
  const double gigabytes = static_cast<double>(result.gpu_memory_bytes) / 1e9;
  const std::string memory = gigabytes == 0 ? "" : fmt::format(", {:.2f} GB of GPU memory", gigabytes);
  if (ranks.empty()) return fmt::format(", {:.1f} % waiting{}", 100 * result.data_wait_share, memory);
  std::string text = each(" waiting for images", " %", [](const RankMetrics& r) { return 100 * r.data_wait_share; }) +
                     each(" for other processes", " %", [](const RankMetrics& r) { return 100 * r.exchange_share; });
  if (gigabytes > 0)
    text += each(" of GPU memory", " GB",
                 [](const RankMetrics& r) { return static_cast<double>(r.gpu_memory_bytes) / 1e9; });
  return text;
}

/// Returns the loss for a line of text. The loss of a training that diverges may have any number of digits.
std::string loss_text(double loss) { return std::abs(loss) < 1e6 ? fmt::format("{:.4f}", loss) : decimal(loss); }

/// Puts the scores on the validation images where metrics.jsonl has them.
void put_validation(const Evaluation& evaluation, EpochMetrics& metrics) {
  const bool boxes = evaluation.task.labels == Labels::boxes;
  metrics.validation_loss = evaluation.loss;
  metrics.validation_top1 = boxes ? evaluation.ap50 : evaluation.top1;
  if (evaluation.task.pixels()) metrics.validation_mean_iou = evaluation.mean_iou;
  if (boxes) metrics.validation_ap = evaluation.ap;
}

/// Returns the command that trains `run` anew into another folder. from_float: from its float weights.
std::string anew(const Run& run, bool from_float) {
  std::string command = fmt::format("octet train {} --out ANOTHER", shell_word(run.directory.recipe()));
  if (from_float)
    command +=
        fmt::format(" --set train.epochs=0 --set {}", shell_word("model.weights=" + run.directory.float_weights()));
  return command;
}

}  // namespace

Evaluation validated(const Run& run, const std::string& name, Program& network) {
  return evaluate(name, network, run.data.validation_images(),
                  {.classes = run.data.classes(), .batch_size = run.recipe.evaluate.batch_size, .latency_images = 0});
}

void finish_epoch(const Run& run, const Phase& phase, const EpochResult& result, const MakeProgram& network,
                  const std::string& warning) {
  std::optional<Evaluation> evaluation;
  if (result.validate) evaluation = validated(run, phase.name, *network());
  const std::vector<RankMetrics> ranks = of_all_ranks(run, result);
  const auto require_finite = [&] {
    if (evaluation && !std::isfinite(evaluation->loss))
      throw NotFinite(fmt::format("the loss on the validation images is {}", decimal(evaluation->loss)));
  };
  if (!run.writes()) return require_finite();
  EpochMetrics metrics = {.phase = phase.name,
                          .epoch = result.epoch + 1,
                          .train_loss = result.train_loss,
                          .train_cross_entropy = result.train_cross_entropy,
                          .train_top1 = result.train_top1,
                          .learning_rate = result.learning_rate,
                          .images_per_second = result.images_per_second,
                          .data_wait_share = result.data_wait_share,
                          .seconds = result.seconds,
                          .gpu_memory_bytes = static_cast<long>(result.gpu_memory_bytes),
                          .ranks = ranks};
  if (evaluation) put_validation(*evaluation, metrics);
  add_metrics(run.directory.metrics(), metrics);
  record_epoch(run, metrics, evaluation ? phase.quantized : nullptr);
  const int epochs = phase.recipe->epochs;
  show_running(run, progress(phase.name, epochs, result));
  std::string validated;
  if (evaluation)
    validated = fmt::format(", validation loss {}, {} {:.2f} %", loss_text(evaluation->loss),
                            score_names(run.data.task().labels).score, 100 * evaluation->score());
  say(fmt::format("{} {}/{}: loss {}{}, {:.0f} images/s{}", phase.name, result.epoch + 1, epochs,
                  loss_text(result.train_cross_entropy), validated, result.images_per_second, costs(result, ranks)));
  const std::string said = !warning.empty() ? warning
                                            : runaway_loss(read_metrics(run.directory.metrics()), epochs,
                                                           phase.freeze_batch_norm, result.first_loss);
  if (!said.empty()) say(said);
  if (run.epoch_done) {
    unbind();  // from its core (OwnCores): threads that the caller may start here get all cores
    run.epoch_done(metrics);
  }
  require_finite();
}

void say_what_it_costs(const Run& run, const std::string& phase, Precision precision) {
  if (!run.device.is_cpu()) return;
  const std::string note = cpu_precision_note(phase, precision);
  if (!note.empty()) say(note);
}

Phase phase_of(const Run& run, const char* name, const OptimizerRecipe& recipe, const Graph& graph, Weights& weights) {
  Phase phase{.name = name, .recipe = &recipe, .graph = &graph, .weights = &weights};
  phase.ranks = run.ranks.get();
  phase.cuda = run.recipe.cuda;
  phase.parallel = run.recipe.parallel;
  phase.objective = make_objective(run.data.task(), run.device);
  phase.seed = run.recipe.seed;
  const bool from_float = phase.name != "float";
  phase.fingerprint = fingerprint(run) + (from_float ? hash_of(weights) : "");
  phase.anew = anew(run, from_float);
  return phase;
}

std::string ruined_in(const std::function<void()>& train, int beginning, bool may_begin_again) {
  try {
    train();
    return "";
  } catch (const Ruined& error) {
    return error.what();
  } catch (const Diverged& error) {
    if (error.epoch() > beginning || !may_begin_again) throw;
    return error.happened();
  }
}

std::string lower_rate_note(const std::string& section, double rate, const std::string& why, double lower) {
  return fmt::format("{}.learning_rate: {:g} ruins the network: {}; its training begins again at {:g}", section, rate,
                     why, lower);
}

void give_up(const Run& run, Phase& phase, const Weights& beginning) {
  const c10::NoGradGuard no_grad;
  phase.resume = false;
  for (const auto& [name, tensor] : beginning) phase.weights->at(name).copy_(tensor);
  if (run.writes()) std::filesystem::remove(phase.checkpoint);
  release_cached(phase.device());  // the memory of the recorded step, which was given up with it
}

namespace {

/// Returns a warning of an epoch's result, or "". It may throw, before anything is recorded of the epoch.
using EpochJudge = std::function<std::string(const EpochResult&)>;

void train_float_network(const Run& run, Phase& phase, const EpochJudge& judge) {
  phase.epoch_done = [&](const EpochResult& result) {
    const std::string warning = judge(result);
    finish_epoch(
        run, phase, result, [&] { return float_program(run.graph, *phase.weights, run.preprocessing); }, warning);
  };
  train_phase(phase, run.data);
}

/// Returns "train.learning_rate: 0.1, after 1 epoch of warm-up (the recipe sets none)".
std::string own_rate_line(const OptimizerRecipe& recipe) {
  const double epochs = recipe.warmup_epochs;
  const std::string course = epochs > 0 ? fmt::format("after {:g} epoch{} of warm-up", epochs, epochs == 1 ? "" : "s")
                                        : "the peak of schedule one_cycle";
  return fmt::format("train.learning_rate: {:g}, {} (the recipe sets none)", recipe.learning_rate, course);
}

/// Trains the float phase at octet's own rate, and begins it again at lower ones while its first epoch is ruined. That
/// is validated whatever val_interval is, since that may show that it is ruined. Returns what the report says of the
/// rate.
std::string train_at_own_rate(Run& run, Phase& phase) {
  const Weights beginning = copies_of(*phase.weights, at::kCPU);  // a GPU's memory is for training
  phase.validates_first = true;
  if (!phase.resume || !std::filesystem::exists(phase.checkpoint))
    say(own_rate_line(with_own_rate(run.recipe, run.float_rate)));
  for (;;) {
    const double rate = run.float_rate;
    const OptimizerRecipe recipe = with_own_rate(run.recipe, rate);
    phase.recipe = &recipe;
    const std::optional<double> lower = lower_rate(run.recipe, rate);
    const auto train = [&] {
      train_float_network(run, phase, [&](const EpochResult& result) {
        const std::string what = ruin(result, run.data.task());
        if (what.empty()) return what;
        if (lower) throw Ruined(what);
        return fmt::format("warning: float: {}, and lower rates than {:g} are not tried", what, rate);
      });
    };
    const std::string why = ruined_in(train, /*beginning=*/0, lower.has_value());
    if (why.empty()) {
      const double first = first_float_rate(run.recipe);
      if (rate >= first) return "";
      return fmt::format("train.learning_rate: {:g}: at {} the training was ruined", rate,
                         rate < 0.2 * first ? "higher rates" : fmt::format("{:g}", first));
    }
    say(lower_rate_note("train", rate, why, *lower));
    run.float_rate = *lower;
    give_up(run, phase, beginning);
    if (run.writes()) keep_float_rate(run.directory, run.float_rate);
  }
}

}  // namespace

std::string train_float(Run& run, Weights& weights, bool resume, const std::function<bool()>& stop) {
  std::string note;
  if (run.recipe.train.epochs > 0) {
    say_what_it_costs(run, "train", run.recipe.train.precision);
    const bool staged = !run.recipe.parallel.stages.empty();  // fused as in QAT, which is cut at the same places
    const Graph trained = staged ? fuse(run.graph) : run.graph;
    Phase phase = phase_of(run, "float", run.recipe.train, trained, weights);
    phase.checkpoint = run.directory.float_state();
    phase.resume = resume;
    phase.stop = stop;
    if (run.recipe.train.learning_rate > 0)
      train_float_network(run, phase, [&](const EpochResult& result) {
        const std::string what = ruin(result, run.data.task());
        return what.empty() ? what : fmt::format("warning: float: {}; lower train.learning_rate", what);
      });
    else
      note = train_at_own_rate(run, phase);
  }
  if (run.writes()) save_weights(weights, run.directory.float_weights());
  if (run.ranks) run.ranks->meet();  // the float control reads the file
  return note;
}

Weights train_float_control(const Run& run, bool resume, const std::function<bool()>& stop) {
  QatRecipe recipe = run.recipe.qat;
  recipe.learning_rate = qat_rate(run).rate;
  Weights weights = load_float(run);    // what QAT started from
  const Graph fused = fuse(run.graph);  // without dropout, as in QAT
  Phase phase = phase_of(run, "float_control", recipe, fused, weights);
  phase.freeze_batch_norm = recipe.freeze_batch_norm.value_or(kUsualFreeze);
  phase.images_of = "qat";
  phase.checkpoint = run.directory.float_control_state();
  phase.resume = resume;
  phase.stop = stop;
  train_float_network(run, phase, [](const EpochResult&) { return ""; });
  if (run.writes()) save_weights(weights, run.directory.float_control());
  return weights;
}

}  // namespace octet
