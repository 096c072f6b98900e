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

/// What a trained network is held against.
struct TrainedSide {
  std::vector<OwnedProgram> programs;  ///< the QAT graph, and what is counted against it
  DerivedConstants constants;          ///< those of the int8 network, derived again
};

/// `recipe`: the run's, see recipe_of(); `device`: the command line's --device; `graph`: the int8 network that is
/// compared. trained_programs() and derived_constants() of trainers/run/measure.h. Without LibTorch: no programs and
/// no constants, after saying so on stderr.
TrainedSide trained_side(const Recipe& recipe, const RunDirectory& directory, const std::string& device,
                         const Int8Graph& graph);

/// The run's float network, float control if it has one, simulation and QAT graph, by name. Without LibTorch: empty,
/// after saying so.
std::vector<std::pair<std::string, std::unique_ptr<Program>>> all_trained_programs(const Recipe& recipe,
                                                                                   const RunDirectory& directory,
                                                                                   const std::string& device);

/// Measures the network of the recipe `path` on --device and prints where to cut it into `stages`. Without LibTorch:
/// Error(usage).
ExitCode inspect_stages(const Common& common, const std::string& path, int stages);

}  // namespace octet::cli
