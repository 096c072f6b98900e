#include "tools/octet/measured_run.h"

#include <utility>

#include "src/common/cores.h"
#include "src/common/error.h"
#include "src/engine/engine_choice.h"
#include "src/recipe/fallback.h"
#include "tools/octet/engine_flags.h"
#include "tools/octet/target.h"

namespace octet::cli {

void add_measure_options(CLI::App& command, MeasureOptions& options, const std::string& default_engines) {
  command.add_option("RUN", options.run, "a run directory")->required();
  command.add_option("--checkpoint", options.checkpoint, "another than the run's: " + checkpoint_help());
  command.add_option("--engine", options.engines, "engines, also auto (default: " + default_engines + ")")
      ->delimiter(',');
  add_fallback(command, options.fallback);
  command.add_option("--images", options.images, "only the first N test images")->check(CLI::PositiveNumber);
  command.add_option("--threads", options.threads, "0: all cores (default: the recipe's)")
      ->check(CLI::Range(0, kMostThreads));
}

MeasuredRun open_measured_run(const Common& common, const MeasureOptions& options,
                              const std::vector<std::string>& engines) {
  for (const std::string& key : common.set)
    if (!engines.empty() && key.starts_with("evaluate.engines="))
      throw usage_error("--set " + key + ": this command measures others than the recipe names; say --engine");
  MeasuredRun run;
  run.directory = run_directory(options.run);
  run.recipe = recipe_of(run.directory, common.set);
  run.engines = resolve_engines(!options.engines.empty() ? options.engines
                                : !engines.empty()       ? engines
                                                         : run.recipe.evaluate.engines,
                                devices(common));
  Checkpoint checkpoint = open_checkpoint(options.checkpoint.empty() ? run.directory.root : options.checkpoint);
  run.checkpoint = std::move(checkpoint.file);
  run.graph = std::move(checkpoint.graph);
  // Pictures as the checkpoint says, which an octet may have written that knew neither.
  run.recipe.data.orientation = run.graph.preprocessing.exif_orientation ? "exif" : "as_stored";
  run.data = open_run_data(run.recipe);
  run.data.evaluation_transform.even_margin = run.graph.preprocessing.even_margin;
  check_fits(run.graph, run.checkpoint, run.data);
  run.compile.max_batch = run.recipe.evaluate.batch_size;
  run.compile.threads = options.threads.value_or(run.recipe.threads);
  run.compile.fallback =
      options.fallback.value_or(partial_engine(run.engines).empty() ? "none" : run.recipe.evaluate.fallback);
  check_fallback("", run.compile.fallback, run.engines);  // --engine names other engines than the recipe, perhaps
  return run;
}

}  // namespace octet::cli
