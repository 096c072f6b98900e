// SPDX-License-Identifier: Apache-2.0
// What commands work on: a checkpoint file or a run directory; and checks of the files that they write.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/net/int8_graph.h"
#include "src/recipe/recipe.h"
#include "src/recipe/run.h"

namespace octet::cli {

struct Checkpoint {
  std::string file;
  Int8Graph graph;
};

/// Returns what open_checkpoint() accepts, for --help.
std::string checkpoint_help();

/// Reads a checkpoint, a quantized ONNX file (QDQ), or a run directory's checkpoint: "runs/demo/int8.safetensors" (or
/// what its export.file says) for "runs/demo". Throws Error(data) if there is none; for a run directory's checkpoint
/// that is damaged, the message says how to write it again.
Checkpoint open_checkpoint(const std::string& path);

/// Throws Error(usage) if one of the files to be written, {option, file or ""}, equals another of them or a file that
/// the command reads: the recipe or run directory `target` with its weights, or a file that `recipe` names. Called
/// before long work.
void require_apart(const std::string& target, const Recipe& recipe,
                   const std::vector<std::pair<std::string_view, std::string>>& written);

/// Throws Error(usage) if `target`, which `command` was given, is a recipe that names no weights.
void require_weights(const std::string& command, const std::string& target, const Recipe& recipe);

/// Opens the run directory at `path`; throws Error(data) if it is none. If the run's process was killed, its page is
/// completed and the user told.
RunDirectory run_directory(const std::string& path);

/// Returns the recipe of a trained run with --set, which may change where the data is and how to measure. Throws
/// Error(usage) if it changes what was trained (model, quant).
Recipe recipe_of(const RunDirectory& directory, const std::vector<std::string>& overrides);

/// Throws Error(usage) if the checkpoint's input or classes do not match the data set's. Gives `data` the detector of a
/// checkpoint of boxes.
void check_fits(const Int8Graph& graph, const std::string& checkpoint, RunData& data);

}  // namespace octet::cli
