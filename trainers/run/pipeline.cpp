// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/pipeline.h"

#include <c10/core/DeviceGuard.h>
#include <fmt/core.h>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/text.h"
#include "src/recipe/run.h"
#include "src/report/report.h"
#include "src/train/model/threads.h"
#include "trainers/gpu.h"
#include "trainers/loop/training_state.h"
#include "trainers/parallel/stages.h"
#include "trainers/run/advice.h"
#include "trainers/run/measure.h"
#include "trainers/run/records.h"

namespace octet {
namespace {

void write_report(const RunDirectory& directory, const Report& report) {
  write_file_atomically(directory.report_html(), report_html(report));
  write_file_atomically(directory.report_svg(), report_svg(report));
  write_file_atomically(directory.report_json(), report_json(report));  // last: a run that has one is finished
}

/// Throws Error(promise) if a measured network computes nothing: fake quantizers clip what overflows in the float
/// network, so that training went on.
void require_finite_rows(const Report& report, const RunDirectory& directory) {
  for (const Row& row : report.rows) {
    const Evaluation& e = row.evaluation;
    if (std::isfinite(e.loss)) continue;
    throw promise_error(fmt::format(
        "the network diverged: the loss of {} on the test images is {}; lower the learning rate of the phase "
        "before. What was measured: {}",
        e.name, decimal(e.loss), directory.report_html()));
  }
}

/// What the phases leave beside weights and states.
struct Phases {
  std::string float_note;        ///< of train_float()
  CalibratedRanges ranges;       ///< of calibrate()
  std::unique_ptr<Program> ptq;  ///< the calibrated network, a copy, since QAT changes weights and ranges
  QatStart qat;
};

/// Runs float phase, PTQ, QAT and float control on all ranks.
Phases train_phases(Run& run, Weights& weights, QuantizedModel& model, bool resume) {
  Phases done;
  done.float_note = train_float(run, weights, resume);
  done.ranges = calibrate_as_recipe(model, run);
  done.ptq = qat_graph_program(model, run.preprocessing);
  done.qat = train_qat(run, model, resume, interrupted, done.ranges.lost);
  if (run.writes()) save_quantized(model, run.directory.quantized());
  if (run.recipe.qat.float_control) train_float_control(run, resume);
  if (run.ranks) run.ranks->meet();  // all ranks measure what the first one wrote
  return done;
}

/// Trains, measures and returns the report. An error that ends the run early is shown on its page.
std::optional<Report> train_and_report(Run& run, Weights& weights, QuantizedModel& model, const EngineNames& engines,
                                       bool resume) try {
  show_running(run, "training has begun");
  const Phases done = train_phases(run, weights, model, resume);
  Report report = measure_and_report(run, model, *done.ptq, engines);
  for (const std::string& note : {done.float_note, done.ranges.chosen})
    if (!note.empty()) report.notes.push_back(note);
  report.notes.insert(report.notes.end(), done.qat.notes.begin(), done.qat.notes.end());
  const bool was_trained = run.recipe.train.epochs > 0;
  if (const std::string note = chance_note(report.rows.front().evaluation, was_trained); !note.empty())
    report.notes.push_back(note);
  if (run.ranks) run.ranks->leave();
  if (!run.writes()) return std::nullopt;
  if (run.data.detector || run.data.task().pixels())
    say("comparing the networks' scores, which takes seconds where there are thousands of test images");
  report.differences = differences(report);
  if (report.differences->lost.is_loss()) report.notes.push_back(diagnose(run, model, done.qat));
  return report;
} catch (const std::exception& error) {
  show_stopped(run, error.what());
  throw;
}

}  // namespace

std::optional<Report> train(const Recipe& recipe, const RunDirectory& directory, const RunStart& start) {
  const auto begin = std::chrono::steady_clock::now();
  c10::OptionalDeviceGuard current;  // a program that uses the library may have selected another GPU for its own work
  if (start.device.is_cuda()) current.reset_device(start.device);
  if (recipe.train.epochs == 0 && recipe.model.weights.empty() && recipe.model.onnx.empty()) {
    throw usage_error("train.epochs is 0 and model.weights is empty: there is nothing to train and nothing to load");
  }
  const EngineNames engines = engines_of(recipe, start.device);  // throws now, not after training
  // The checks come before the folder is made: a run that is refused leaves nothing behind.
  Run run = open_run(recipe, directory, start.device, start.ranks);
  const OwnCores own_cores(start.device.is_cpu() && start.ranks == nullptr);
  run.command = start.command;
  run.machine = start.machine;
  run.epoch_done = start.epoch_done;
  require_trainable(run);
  require_free_name(directory, directory.int8(recipe.export_.file));
  require_engines_take_it(run, engines);
  if (run.writes()) {
    for (const std::string& note : check_images(run.data)) {
      say("note: " + note);
      run.data.notes.push_back(note);
    }
  }
  Weights weights = starting_weights(run);
  run.onnx_weights.reset();  // a copy, for the whole run
  QuantizedModel model = make_quantized(run, weights);
  std::optional<FolderLock> lock;
  if (run.writes()) {
    lock.emplace(start_run_directory(directory, recipe, start));
    run.events = open_events(directory);
  }
  say(fmt::format("run directory: {}\ndevice: {}", directory.root, describe_device(run.device)));
  if (const std::string note = untrained_note(recipe); !note.empty()) say(note);
  if (run.ranks) {
    const int shares = batch_share(run.ranks.get(), recipe.parallel.stages).shares;
    const std::string what = recipe.parallel.stages.empty() ? "share of every batch"
                             : shares == 1                  ? "part of the network"
                                           : fmt::format("part of the network, of {} replicas", shares);
    say(fmt::format("processes: {}, each with a {}", run.ranks->size(), what));
  }
  // After this rank 0 has made the folder. A rank that loses the others then needs no file system, whose host may be
  // the one that was lost.
  if (run.ranks) run.ranks->meet();
  const std::string go_on = start.go_on.empty() ? "" : "; to go on: " + start.go_on;
  const Ranks::Parting parting(run.ranks.get(), go_on, [&](const std::string& why) {
    show_stopped(run, why);
    wait_for_states();
  });
  std::optional<Report> report = train_and_report(run, weights, model, engines, start.resume);
  if (!report) return std::nullopt;
  report->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  record_report(run, *report);
  write_report(directory, *report);
  if (report->comparison.broken()) {
    throw promise_error("what runs is not what was trained:\n" + describe(report->comparison));
  }
  require_finite_rows(*report, directory);
  return report;
}

}  // namespace octet
