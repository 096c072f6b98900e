// What evaluate and compare share: a run, its checkpoint and its test images, opened as the command line says.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/engine/engine.h"
#include "src/recipe/recipe.h"
#include "src/run/run_data.h"
#include "src/run/run_directory.h"
#include "tools/octet/commands.h"

namespace octet::cli {

struct MeasureOptions {
  std::string run, checkpoint;          ///< checkpoint empty: the run's own
  std::vector<std::string> engines;     ///< empty: the command's default
  int images = 0;                       ///< the first N test images; 0: all
  std::optional<int> threads;           ///< default: the recipe's
  std::optional<std::string> fallback;  ///< of engines cudnn and cutlass; default: the recipe's
};

/// Declares RUN, --checkpoint, --engine, --fallback, --images and --threads.
void add_measure_options(CLI::App& command, MeasureOptions& options, const std::string& default_engines);

struct MeasuredRun {
  RunDirectory directory;
  Recipe recipe;
  std::string checkpoint;
  Int8Graph graph;
  RunData data;
  std::vector<std::string> engines;  ///< that this machine runs
  CompileOptions compile;            ///< for batches of recipe.evaluate.batch_size
};

/// `engines`: what runs without --engine, resolve_engines() of it; empty: the recipe's. Throws Error(data) or
/// Error(usage) when something is missing or does not fit.
MeasuredRun open_measured_run(const Common& common, const MeasureOptions& options,
                              const std::vector<std::string>& engines = {});

}  // namespace octet::cli
