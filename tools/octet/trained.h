// SPDX-License-Identifier: Apache-2.0
// What commands need of the training side. Two files define it, trained.cpp with LibTorch and untrained.cpp without, so
// that compare, evaluate and inspect also build without LibTorch; launch.cpp has launch_ranks().
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/engine/engine.h"
#include "src/eval/compare.h"
#include "src/recipe/recipe.h"
#include "src/recipe/run.h"
#include "tools/octet/commands.h"
#include "tools/octet/measured_run.h"

namespace octet::cli {

/// What an int8 network is compared with.
struct TrainedSide {
  std::vector<OwnedProgram> programs;  ///< the QAT graph, and programs whose differences from it are counted
  DerivedConstants constants;          ///< the int8 network's constants, derived a second time
};

/// Returns trained_programs() and derived_constants() of trainers/run/measure.h for a run with its recipe_of(), on
/// --device, and for `graph`, the int8 network that is compared. Without LibTorch: nothing, after saying so on stderr.
TrainedSide trained_side(const Recipe& recipe, const RunDirectory& directory, const std::string& device,
                         const Int8Graph& graph);

/// Returns the run's float network, float control if it has one, simulation and QAT graph, with their names. Without
/// LibTorch: nothing, after saying so on stderr.
std::vector<std::pair<std::string, std::unique_ptr<Program>>> all_trained_programs(const Recipe& recipe,
                                                                                   const RunDirectory& directory,
                                                                                   const std::string& device);

/// Opens the float .onnx file that RUN names, with options.image_paths as its images. boxes: FloatFile::ends has the
/// head of a detector. Without LibTorch: throws Error(usage).
FloatFile float_file(const Common& common, const MeasureOptions& options, bool boxes);

/// octet inspect RECIPE --stages N: measures the recipe's network on --device and prints where to cut it for N
/// processes. Without LibTorch: throws Error(usage).
ExitCode inspect_stages(const Common& common, const std::string& path, int stages);

/// octet train --gpus N: starts this command `count` times without --gpus, with RANK, WORLD_SIZE and the other
/// variables that torchrun sets, and waits for all processes. Returns the first failure's exit code. After a failure
/// the others have 15 seconds to stop by themselves before they are killed, and five more until it stops waiting for
/// those that the kernel does not end. Ctrl-C is passed to all of them.
ExitCode launch_ranks(int count);

}  // namespace octet::cli
