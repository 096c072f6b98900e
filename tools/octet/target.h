// What commands are pointed at: a checkpoint file or a run directory, and pictures for it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/graph/int8_graph.h"
#include "src/recipe/recipe.h"
#include "src/run/run_data.h"
#include "src/run/run_directory.h"

namespace octet::cli {

struct Checkpoint {
  std::string file;
  Int8Graph graph;
};

/// What open_checkpoint() takes, for --help.
std::string checkpoint_help();

/// Reads "runs/demo/int8.safetensors" (or what its export.file says) for "runs/demo"; a file stays as it is, a
/// quantized ONNX file (QDQ) becomes an Int8Graph. Throws Error(data) when neither is there; of a run directory's that
/// is damaged it says how to make it again.
Checkpoint open_checkpoint(const std::string& path);

/// Before long work: throws Error(data) when the folder that `file` is to be written to is not there, or `file` is one.
void require_place_for(const std::string& file);

/// Before long work: throws Error(usage) when one of the files to be written, {option, file or ""}, is another, or what
/// the command reads: the recipe or run directory `target` with its weights, the files that `recipe` names.
void require_apart(const std::string& target, const Recipe& recipe,
                   const std::vector<std::pair<std::string_view, std::string>>& written);

/// The run directory at `path`; throws Error(data) when it is none.
RunDirectory run_directory(const std::string& path);

/// The recipe of a trained run with --set: where the data is and how to measure may change; what was trained (model,
/// quant) may not, Error(usage).
Recipe recipe_of(const RunDirectory& directory, const std::vector<std::string>& overrides);

/// Throws Error(usage) when the checkpoint's input or classes are not the data set's.
void check_fits(const Int8Graph& graph, const std::string& checkpoint, const RunData& data);

}  // namespace octet::cli
