#include "trainers/run/progress_page.h"

#include <fmt/chrono.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <mutex>

#include "src/common/error.h"
#include "src/common/files.h"
#include "src/common/progress.h"
#include "src/common/shell.h"
#include "trainers/run/metrics_file.h"

namespace octet {
namespace {

constexpr double kLeastPatience = 600, kEpochs = 3;

/// How long the page may say the same. Nobody knows yet how long the first epoch takes.
int64_t patience(const std::vector<EpochMetrics>& epochs) {
  constexpr int64_t kFirst = 3600;
  const double seconds = epochs.empty() ? 0 : epochs.back().seconds;
  if (!(seconds > 0 && seconds < 1e9)) return kFirst;
  return static_cast<int64_t>(std::max(kLeastPatience, kEpochs * seconds));
}

std::string host_name() {
  char name[256] = "this host";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

void write_page(const Run& run, const std::string& text, bool running) {
  if (!run.writes()) return;
  static std::mutex one_at_a_time;  // who ends this process because of others writes from a thread of its own
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
