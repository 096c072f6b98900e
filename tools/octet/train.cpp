// octet train RECIPE: from a recipe and images to an int8 checkpoint, with a report.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "src/common/shell.h"
#include "src/recipe/recipe.h"
#include "tools/octet/commands.h"
#include "tools/octet/machine.h"
#include "tools/octet/target.h"
#include "trainers/gpu.h"
#include "trainers/loop/gpu_failure.h"
#include "trainers/run/pipeline.h"

namespace octet::cli {
namespace {

std::string resume_command(const Common& common, const RunDirectory& directory) {
  return fmt::format("octet train {} --resume{}", shell_word(directory.root),
                     common.device == "auto" ? "" : " --device " + common.device);
}

ExitCode train(const Common& common, const std::string& path) {
  const bool is_run = std::filesystem::is_directory(path);
  if (is_run && !common.resume)
    throw usage_error(fmt::format("{}: is a folder; name a recipe, or add --resume to go on with this run", path));
  if (is_run && !common.out.empty())
    throw usage_error(fmt::format("--out {}: {} --resume goes on in its own folder", common.out, path));
  RunDirectory directory = is_run ? run_directory(path) : RunDirectory{common.out};
  while (directory.root.size() > 1 && directory.root.back() == '/') directory.root.pop_back();
  const std::string file = is_run ? directory.recipe() : path;
  const Recipe recipe = read_recipe(file, common.set);
  if (directory.root.empty()) {
    if (common.resume) throw usage_error("--resume needs the run to go on with: octet train RUN --resume");
    directory = new_run_directory("runs", std::filesystem::path(path).stem().string());
  }
  RunStart start;
  start.command = common.command_line;
  start.machine = machine_model();
  start.device = choose_device(common.device);
  start.resume = common.resume;
  const Report report = [&] {
    try {
      return octet::train(recipe, directory, start);
    } catch (const Error& error) {
      if (error.code() != ExitCode::interrupted) throw;
      throw Error(error.code(),
                  fmt::format("{}; what was done is saved: {}", error.what(), resume_command(common, directory)));
    }
  }();
  print_result(common, fmt::format("{}\nreport: {}\n", report_table(report), directory.report_html()),
               [&] { return report_json(report); });
  return ExitCode::ok;
}

}  // namespace

void add_train(CLI::App& app, const Common& common, Action& action) {
  auto path = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("train", "recipe and images -> int8 checkpoint and report");
  command->add_option("RECIPE", *path, "a recipe (recipes/README.md), or with --resume a run directory")->required();
  command->callback([&common, &action, path] {
    action = [&common, path] { return explain_failures([&] { return train(common, *path); }); };
  });
}

}  // namespace octet::cli
