// octet export RUN: writes the int8 checkpoint of a trained run again.
#include <fmt/format.h>

#include <memory>

#include "src/common/progress.h"
#include "src/graph/checkpoint.h"
#include "tools/octet/commands.h"
#include "tools/octet/target.h"
#include "trainers/pipeline.h"

namespace octet::cli {
namespace {

ExitCode export_run(const Common& common, const std::string& path) {
  const RunDirectory directory = run_directory(path);
  const Run run = load_run(directory);
  const std::string out = common.out.empty() ? directory.int8(run.recipe.export_.file) : common.out;
  write_checkpoint(out, to_int8(run, load_quantized(run)));
  say(fmt::format("wrote {}", out));
  return ExitCode::ok;
}

}  // namespace

void add_export(CLI::App& app, const Common& common, Action& action) {
  auto path = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("export", "write a run's int8 checkpoint (again)");
  command->add_option("RUN", *path, "a run directory")->required();
  command->callback([&common, &action, path] { action = [&common, path] { return export_run(common, *path); }; });
}

}  // namespace octet::cli
