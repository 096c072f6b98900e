// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/records.h"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <ctime>
#include <filesystem>
#include <sstream>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/json.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/report/event_file.h"

namespace octet {

// nlohmann::json finds these by name. They determine the keys of metrics.jsonl.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(EpochMetrics, phase, epoch, train_loss, train_cross_entropy, train_top1,
                                   learning_rate, images_per_second, data_wait_share, seconds, gpu_memory_bytes)

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankMetrics, images_per_second, data_wait_share, exchange_share, gpu_memory_bytes)

namespace {

constexpr const char* kRanks = "ranks";  // only if there are several

/// The keys that a line has only if the epoch has the value.
constexpr std::pair<const char*, std::optional<double> EpochMetrics::*> kValidated[] = {
    {"validation_loss", &EpochMetrics::validation_loss},
    {"validation_top1", &EpochMetrics::validation_top1},
    {"validation_mean_iou", &EpochMetrics::validation_mean_iou},
    {"validation_ap", &EpochMetrics::validation_ap}};

nlohmann::json line_of(const EpochMetrics& metrics) {
  nlohmann::json line = metrics;
  for (const auto& [key, value] : kValidated)
    if (metrics.*value) line[key] = *(metrics.*value);
  if (!metrics.ranks.empty()) line[kRanks] = metrics.ranks;
  return spell_numbers(std::move(line));
}

EpochMetrics metrics_of(const nlohmann::json& line) {
  auto metrics = line.get<EpochMetrics>();
  for (const auto& [key, value] : kValidated)
    if (line.contains(key)) metrics.*value = line.at(key).get<double>();
  if (line.contains(kRanks)) metrics.ranks = line.at(kRanks).get<std::vector<RankMetrics>>();
  return metrics;
}

long epochs_so_far(const RunDirectory& directory) {
  return static_cast<long>(read_metrics(directory.metrics()).size());
}

/// Adds the range of every edge: the values of its lowest and highest code.
void add_ranges(const QuantizedModel& model, EventFile::Scalars& scalars) {
  const std::vector<QParams> edges = model.edges();
  const Graph& graph = model.prepared().graph;
  for (size_t n = 0; n < edges.size(); ++n) {
    const std::string tag = "ranges/" + graph.nodes[n].name;
    scalars.emplace_back(tag + "/low", dequantize(edges[n].quant_min, edges[n]));
    scalars.emplace_back(tag + "/high", dequantize(edges[n].quant_max, edges[n]));
  }
}

void add_histogram(const std::string& tag, const Histogram& from, std::vector<EventHistogram>& histograms) {
  if (!from.counts.empty()) histograms.push_back({tag, from.lo, from.hi, from.counts});
}

constexpr double kMinPatience = 600, kEpochs = 3;

/// Returns for how many seconds the page may stay as it is before the run counts as overdue. In the first epoch nobody
/// knows yet how long an epoch takes.
int64_t patience(const std::vector<EpochMetrics>& epochs) {
  constexpr int64_t kFirst = 3600;
  const double seconds = epochs.empty() ? 0 : epochs.back().seconds;
  if (!(seconds > 0 && seconds < 1e9)) return kFirst;
  return static_cast<int64_t>(std::max(kMinPatience, kEpochs * seconds));
}

std::string host_name() {
  char name[256] = "this host";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

void write_page(const Run& run, const std::string& text, bool running) {
  if (!run.writes()) return;
  static std::mutex one_at_a_time;  // a lost rank is reported from a thread of its own
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  Report report = report_so_far(run);
  const std::time_t now = std::time(nullptr);
  report.state.text = fmt::format("{} ({:%Y-%m-%d %H:%M:%S} UTC)", text, fmt::gmtime(now));
  report.state.running = running;
  report.state.written = now;
  report.state.patience = patience(report.epochs);
  report.state.overdue =
      fmt::format("process {} on {} may have ended. If it has, octet train {} --resume goes on; if not, it is refused",
                  ::getpid(), host_name(), shell_word(run.directory.root));
  write_file_atomically(run.directory.report_html(), report_html(report));
}

}  // namespace

std::vector<EpochMetrics> read_metrics(const std::string& path) {
  std::vector<EpochMetrics> metrics;
  if (!std::filesystem::exists(path)) return metrics;
  std::istringstream lines(read_file(path));
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    try {
      metrics.push_back(metrics_of(read_numbers(nlohmann::json::parse(line))));
    } catch (const nlohmann::json::exception& error) {
      throw data_error(fmt::format("{}:{}: not a line of metrics: {}", path, number, error.what()));
    }
  }
  return metrics;
}

void add_metrics(const std::string& path, const EpochMetrics& metrics) {
  std::string text;
  for (const EpochMetrics& earlier : read_metrics(path)) {
    if (earlier.phase == metrics.phase && earlier.epoch >= metrics.epoch) continue;
    text += line_of(earlier).dump() + "\n";
  }
  write_file_atomically(path, text + line_of(metrics).dump() + "\n");
}

std::shared_ptr<EventFile> open_events(const RunDirectory& directory) {
  const long epochs = epochs_so_far(directory);
  return std::make_shared<EventFile>(directory.events(), epochs > 0 ? epochs + 1 : 0);
}

void record_epoch(const Run& run, const EpochMetrics& m, const QuantizedModel* model) {
  if (!run.events) return;
  EventFile::Scalars scalars = {{"loss/" + m.phase + "/training", m.train_cross_entropy},
                                {"top1/" + m.phase + "/training", m.train_top1},
                                {"learning_rate/" + m.phase, m.learning_rate},
                                {"images_per_second/" + m.phase, m.images_per_second},
                                {"data_wait_share/" + m.phase, m.data_wait_share},
                                {"seconds/" + m.phase, m.seconds}};
  const auto add_validated = [&](const char* what, const std::optional<double>& value) {
    if (value) scalars.emplace_back(fmt::format("{}/{}/validation", what, m.phase), *value);
  };
  add_validated("loss", m.validation_loss);
  add_validated("top1", m.validation_top1);
  add_validated("mean_iou", m.validation_mean_iou);
  add_validated("ap", m.validation_ap);
  if (model != nullptr) add_ranges(*model, scalars);
  run.events->add(epochs_so_far(run.directory), scalars);
}

void record_report(const Run& run, const Report& report) {
  if (!run.events) return;
  EventFile::Scalars scores;
  for (const Row& row : report.rows) scores.emplace_back("test/" + row.evaluation.name, row.evaluation.score());
  std::vector<EventHistogram> histograms;
  for (const ReportLayer& layer : report.layers) {
    add_histogram("weights/" + layer.statistics.name, layer.statistics.weights, histograms);
    add_histogram("activations/" + layer.statistics.name, layer.statistics.activations, histograms);
  }
  run.events->add(epochs_so_far(run.directory), scores, histograms);
}

Report report_so_far(const Run& run) {
  const Recipe& recipe = run.recipe;
  Report report;
  report.labels = run.data.task().labels;
  report.title = recipe.model.name + " on " + recipe.data.format;
  if (run.data.tests_on_training_images) report.notes.push_back(kSameImages);
  report.notes.insert(report.notes.end(), run.data.notes.begin(), run.data.notes.end());
  if (run.ranks) report.notes.push_back(fmt::format("{} processes trained together", run.ranks->size()));
  report.model = run.graph.name;
  report.recipe = write_recipe(recipe);
  report.recipe_hash = recipe_hash(recipe);
  report.command = run.command;
  report.machine = run.machine;
  report.versions = versions();
  report.seed = recipe.seed;
  report.multiply_adds = multiply_adds(run.graph);
  report.epochs = read_metrics(run.directory.metrics());
  report.class_names = run.data.train_set->class_names();
  return report;
}

void show_running(const Run& run, const std::string& doing) { write_page(run, "Running: " + doing, true); }

void show_stopped(const Run& run, const std::string& why) try {
  write_page(run, "Stopped: " + why, false);
} catch (const std::exception& error) {
  say(fmt::format("{}: the page is not up to date: {}", run.directory.report_html(), error.what()));
}

}  // namespace octet
