#include "trainers/run/pipeline.h"

#include <c10/core/DeviceGuard.h>
#include <fmt/core.h>

#include <chrono>
#include <cmath>

#include "src/common/error.h"
#include "src/common/files.h"
#include "src/common/progress.h"
#include "src/common/text_table.h"
#include "src/model/own_cores.h"
#include "src/run/picture_check.h"
#include "trainers/gpu.h"
#include "trainers/loop/stages.h"
#include "trainers/run/events.h"
#include "trainers/run/measure.h"
#include "trainers/run/progress_page.h"

namespace octet {
namespace {

void write_report(const RunDirectory& directory, const Report& report) {
  write_file_atomically(directory.report_html(), report_html(report));
  write_file_atomically(directory.report_svg(), report_svg(report));
  write_file_atomically(directory.report_json(), report_json(report));  // last: a run that has one is finished
}

/// What was measured, and still computes nothing: fake quantizers clip what overflows in the float network.
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

/// Float phase, PTQ, QAT and float control, all ranks alike. Returns PTQ's program: QAT changes weights and ranges.
std::unique_ptr<Program> train_phases(const Run& run, Weights& weights, QuantizedModel& model, bool resume) {
  train_float(run, weights, resume);
  calibrate(model, run);
  std::unique_ptr<Program> ptq = qat_graph_program(model, run.preprocessing);
  train_qat(run, model, resume);
  if (run.writes()) save_quantized(model, run.directory.quantized());
  if (run.recipe.qat.float_control) train_float_control(run, resume);
  if (run.ranks) run.ranks->meet();  // all measure what the first one wrote
  return ptq;
}

/// Training, measuring, the report; what ends it early stands on the page.
std::optional<Report> train_and_report(const Run& run, Weights& weights, QuantizedModel& model,
                                       const EngineNames& engines, bool resume) try {
  show_running(run, "training has begun");
  const std::unique_ptr<Program> ptq = train_phases(run, weights, model, resume);
  Report report = measure_and_report(run, model, *ptq, engines);
  if (run.ranks) run.ranks->leave();
  if (!run.writes()) return std::nullopt;
  return report;
} catch (const std::exception& error) {
  show_stopped(run, error.what());
  throw;
}

}  // namespace

std::optional<Report> train(const Recipe& recipe, const RunDirectory& directory, const RunStart& start) {
  const auto begin = std::chrono::steady_clock::now();
  c10::OptionalDeviceGuard
      current;  // a program that trains by the library may have chosen another GPU for its own work
  if (start.device.is_cuda()) current.reset_device(start.device);
  if (recipe.train.epochs == 0 && recipe.model.weights.empty() && recipe.model.onnx.empty()) {
    throw usage_error("train.epochs is 0 and model.weights is empty: there is nothing to train and nothing to load");
  }
  const EngineNames engines = engines_of(recipe, start.device);  // throws: told now, not after training
  // Before the folder is made: what is refused leaves nothing behind, and is not refused after the float phase.
  Run run = open_run(recipe, directory, start.device, start.ranks);
  const OwnCores own_cores(start.device.is_cpu() && start.ranks == nullptr);
  run.command = start.command;
  run.machine = start.machine;
  run.epoch_done = start.epoch_done;
  require_trainable(run);
  require_free_name(directory, directory.int8(recipe.export_.file));
  require_engines_take_it(run, engines);
  if (run.writes()) {
    for (const std::string& note : check_pictures(run.data)) {
      say("note: " + note);
      run.data.notes.push_back(note);
    }
  }
  Weights weights = starting_weights(run);
  QuantizedModel model = make_quantized(run, weights);
  std::optional<FolderLock> lock;
  if (run.writes()) {
    lock.emplace(start_run_directory(directory, recipe, start));
    run.events = open_events(directory);
  }
  say(fmt::format("run directory: {}\ndevice: {}", directory.root, describe_device(run.device)));
  if (run.ranks) {
    const int shares = batch_share(run.ranks.get(), recipe.parallel.stages).shares;
    const std::string what = recipe.parallel.stages.empty() ? "share of every batch"
                             : shares == 1                  ? "part of the network"
                                           : fmt::format("part of the network, of {} replicas", shares);
    say(fmt::format("processes: {}, each with a {}", run.ranks->size(), what));
  }
  // Rank 0 has made the folder by now: who loses the others asks no file system, whose host may be what was lost.
  if (run.ranks) run.ranks->meet();
  const std::string go_on = start.go_on.empty() ? "" : "; to go on: " + start.go_on;
  const Ranks::Parting parting(run.ranks.get(), go_on, [&](const std::string& why) { show_stopped(run, why); });
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
