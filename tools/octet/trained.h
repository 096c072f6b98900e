// The training side behind a door, so that compare and evaluate also build without LibTorch.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/engine/engine.h"
#include "src/eval/compare.h"
#include "src/recipe/recipe.h"
#include "src/run/run_directory.h"
#include "tools/octet/commands.h"

namespace octet::cli {

/// `recipe`: the run's, see recipe_of(); `device`: the command line's --device. The QAT graph of a run, and what is
/// counted against it (trained_programs() of trainers/run/measure.h). Without LibTorch: none, after saying so on
/// stderr.
std::vector<OwnedProgram> compared_programs(const Recipe& recipe, const RunDirectory& directory,
                                            const std::string& device);

/// The run's float network, float control if it has one, simulation and QAT graph, by name. Without LibTorch: empty,
/// after saying so.
std::vector<std::pair<std::string, std::unique_ptr<Program>>> all_trained_programs(const Recipe& recipe,
                                                                                   const RunDirectory& directory,
                                                                                   const std::string& device);

/// Measures the network of the recipe `path` on --device and prints where to cut it into `stages`. Without LibTorch:
/// Error(usage).
ExitCode inspect_stages(const Common& common, const std::string& path, int stages);

}  // namespace octet::cli
