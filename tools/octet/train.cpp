// SPDX-License-Identifier: Apache-2.0
// octet train RECIPE: from a recipe and images to an int8 checkpoint, with a report.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "src/base/files.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/engine/engine.h"
#include "src/recipe/recipe.h"
#include "src/recipe/run.h"
#include "tools/octet/commands.h"
#include "tools/octet/target.h"
#include "tools/octet/trained.h"
#include "trainers/gpu.h"
#include "trainers/parallel/ranks.h"
#include "trainers/run/pipeline.h"

namespace octet::cli {
namespace {

/// Returns " --gpus 2" if octet started this process and removed that flag; else "".
std::string launched_with(const std::optional<RankEnvironment>& environment) {
  const bool launched = environment && !environment->store_is_there && environment->size == environment->local_size;
  return launched ? fmt::format(" --gpus {}", environment->size) : "";
}

/// Returns the command that goes on with the run.
std::string resume_command(const Common& common, const RunDirectory& directory,
                           const std::optional<RankEnvironment>& environment) {
  return fmt::format("octet train {} --resume{}{}", shell_word(directory.root), launched_with(environment),
                     common.device == "auto" ? "" : " --device " + common.device);
}

/// Returns what must be the same in every process, one item a line; an error names the first line that differs.
std::string agreement(const Recipe& recipe, at::Device device, bool resume) {
  std::string text;
  for (const auto& [name, version] : versions()) text += fmt::format("{} {}\n", name, version);
  return text + fmt::format("device {}\n{}\n{}", device.is_cpu() ? "cpu" : "cuda", resume ? "--resume" : "a new run",
                            write_recipe(recipe));
}

/// Connects to the other processes that torchrun or --gpus started; returns null if this process trains alone.
std::shared_ptr<Ranks> meet_ranks(const std::optional<RankEnvironment>& environment, const std::string& agreement,
                                  at::Device device) {
  if (!environment) return nullptr;
  if (environment->rank > 0) set_verbosity(Verbosity::quiet);
  return std::make_shared<Ranks>(*environment, device, agreement);
}

/// The recipe and the directory that the command line names.
struct ChosenRun {
  Recipe recipe;
  RunDirectory directory;
};

ChosenRun choose_run(const Common& common, const std::string& path) {
  const bool is_run = std::filesystem::is_directory(path);
  if (is_run && !common.resume)
    throw usage_error(fmt::format("{}: is a folder; name a recipe, or add --resume to go on with this run", path));
  if (common.resume && !std::filesystem::exists(path))
    throw usage_error(fmt::format("{}: no such run directory to go on with; octet train RECIPE makes one", path));
  if (is_run && !common.out.empty())
    throw usage_error(fmt::format("--out {}: {} --resume goes on in its own folder", common.out, path));
  RunDirectory directory = is_run ? run_directory(path) : RunDirectory{common.out};
  while (directory.root.size() > 1 && directory.root.back() == '/') directory.root.pop_back();
  const Recipe recipe = is_run ? read_run_recipe(directory.recipe(), common.set) : read_given_recipe(path, common.set);
  if (directory.root.empty()) {
    if (common.resume) throw usage_error("--resume needs the run to go on with: octet train RUN --resume");
    directory = new_run_directory("runs", std::filesystem::path(path).stem().string());
  }
  return {recipe, directory};
}

/// Whether all losses of a report are finite: others are null in report.json.
bool is_finite(const nlohmann::json& report) {
  const nlohmann::json rows = report.value("rows", nlohmann::json::array());
  return std::none_of(rows.begin(), rows.end(), [](const nlohmann::json& row) { return row.at("loss").is_null(); });
}

/// Whether the run has ended and kept its promise, so that --resume has nothing to do, unless the recipe has changed.
bool is_finished(const ChosenRun& run) {
  const RunDirectory& directory = run.directory;
  for (const std::string& file : {directory.report_json(), directory.recipe()})
    if (!std::filesystem::exists(file)) return false;
  const auto report = nlohmann::json::parse(read_file(directory.report_json()), nullptr, /*allow_exceptions=*/false);
  const auto identical = nlohmann::json::json_pointer("/headline/identical");  // null: nothing was promised
  return report.is_object() && report.contains(identical) && report.at(identical) != false && is_finite(report) &&
         write_recipe(read_run_recipe(directory.recipe())) == write_recipe(run.recipe);
}

ExitCode tell_finished(const Common& common, const RunDirectory& directory) {
  print_result(
      common,
      fmt::format("{}: this run is finished; its report: {}\nmeasure it again: octet compare {}, octet "
                  "evaluate {}",
                  directory.root, directory.report_html(), shell_word(directory.root), shell_word(directory.root)),
      [&] { return read_file(directory.report_json()); });
  return ExitCode::ok;
}

/// Trains in this process, alone or as one of several.
ExitCode train(const Common& common, const std::string& path, const std::optional<RankEnvironment>& environment) {
  auto [recipe, directory] = choose_run(common, path);
  const bool speaks = !environment || environment->rank == 0;
  if (common.resume && is_finished({recipe, directory}))
    return speaks ? tell_finished(common, directory) : ExitCode::ok;
  if (recipe.data.decode == Decoding::gpu) take_all_queues();  // before check_device(), with which CUDA begins
  check_device(common);
  const at::Device device =
      environment ? choose_device_of_rank(common.device, environment->size) : choose_device(common.device);
  RunStart start;
  start.ranks = meet_ranks(environment, agreement(recipe, device, common.resume), device);
  if (start.ranks) directory.root = start.ranks->from_first(directory.root);
  start.command = common.command_line + launched_with(environment);
  start.machine = machine_model();
  start.device = device;
  start.resume = common.resume;
  start.go_on = resume_command(common, directory, environment);
  std::optional<Report> report;
  try {
    report = octet::train(recipe, directory, start);
  } catch (const OthersLost&) {
    throw;
  } catch (const Error& error) {
    if (error.code() == ExitCode::interrupted && !speaks) return error.code();
    if (error.code() == ExitCode::interrupted)
      throw Error(error.code(), fmt::format("{}; what was done before is saved: {}", error.what(), start.go_on));
    if (start.ranks && start.ranks->fail(error.what())) return error.code();
    throw;
  } catch (const std::exception& error) {
    if (start.ranks && start.ranks->fail(error.what())) return ExitCode::promise;
    throw;
  }
  if (!report) return ExitCode::ok;  // rank 0 has it
  print_result(common, fmt::format("{}\nreport: {}\n", report_table(*report), directory.report_html()),
               [&] { return report_json(*report); });
  return ExitCode::ok;
}

/// Refuses once what every process would refuse, then starts the processes.
ExitCode launch(const Common& common, const std::string& path, int ranks) {
  const ChosenRun run = choose_run(common, path);
  if (common.resume && is_finished(run)) return tell_finished(common, run.directory);
  check_device(common);
  choose_device_of_rank(common.device, ranks, ranks);
  return launch_ranks(ranks);
}

}  // namespace

void add_train(CLI::App& app, const Common& common, Action& action) {
  auto path = std::make_shared<std::string>();
  auto ranks = std::make_shared<int>(0);
  CLI::App* command = app.add_subcommand("train", "recipe and images -> int8 checkpoint and report");
  command->add_option("RECIPE", *path, "a recipe (recipes/README.md), or with --resume a run directory")->required();
  command
      ->add_option("--gpus,--ranks", *ranks, "so many processes train together on this host: one a GPU, or on its CPU")
      ->check(CLI::Range(2, 1024));
  command->callback([&common, &action, path, ranks] {
    const std::optional<RankEnvironment> environment = read_rank_environment();
    if (environment && *ranks > 0)
      throw usage_error("--gpus starts the processes itself, but WORLD_SIZE is set already; leave one of them out");
    // Before anything asks for a GPU: each process sees its own alone.
    if (environment)
      ::setenv("CUDA_VISIBLE_DEVICES", own_gpu(*environment, from_process("CUDA_VISIBLE_DEVICES")).c_str(), 1);
    action = [&common, path, ranks, environment] {
      if (common.device.starts_with("cuda:") && (environment || *ranks > 0))
        throw usage_error(
            fmt::format("--device {} is one GPU, and several processes train on one each; choose theirs by "
                        "CUDA_VISIBLE_DEVICES, and leave --device out",
                        common.device));
      if (*ranks > 0) return launch(common, *path, *ranks);
      return explain_failures([&] { return train(common, *path, environment); });
    };
  });
}

}  // namespace octet::cli
