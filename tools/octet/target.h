// SPDX-License-Identifier: Apache-2.0
// What commands work on: a checkpoint file or a run directory, and checks of the files that they write (target.cpp);
// the flags of commands that run engines, and the run that evaluate and compare measure (measured_run.cpp).
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/data/image_options.h"
#include "src/engine/engine.h"
#include "src/net/int8_graph.h"
#include "src/recipe/recipe.h"
#include "src/recipe/run.h"
#include "tools/octet/commands.h"
#include "trainers/run/float_file.h"

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

/// Declares --fallback; Text is std::string or its std::optional.
template <typename Text>
void add_fallback(CLI::App& command, Text& fallback) {
  command.add_option("--fallback", fallback, "cudnn, cutlass: what runs the nodes they cannot: none, cuda")
      ->check(CLI::IsMember({"none", "cuda"}));
}

/// Throws Error(usage), beginning with `who` ("bench: "), for cudnn or cutlass without a fallback, and for a fallback
/// without them: a flag that would change nothing is refused.
void check_fallback(const std::string& who, const std::string& fallback, const std::vector<std::string>& engines);

/// Throws Error(usage), beginning with `who`, for kernels other than "auto" without engine cpu or cuda.
void check_kernels(const std::string& who, const std::string& kernels, const std::vector<std::string>& engines);

/// What the command line of evaluate or compare says.
struct MeasureOptions {
  std::string run, checkpoint;          ///< an empty checkpoint is the run's own; run: a checkpoint, too
  std::vector<std::string> engines;     ///< empty: the command's default
  int images = 0;                       ///< number of test images, the first of all; 0: all
  std::vector<std::string> pictures;    ///< of a checkpoint: where its images are
  std::optional<int> threads;           ///< default: the recipe's
  std::optional<std::string> fallback;  ///< for engines cudnn and cutlass; default: the recipe's
  // Of a float .onnx file:
  ImageOptions image;                ///< how images become its input
  std::vector<std::string> outputs;  ///< values of the file that it ends at; empty: its own outputs
  int image_size = 0;                ///< height and width where the file leaves them open, or takes others too
};

/// Whether RUN is a network's file in place of a run directory.
bool is_measured_file(const MeasureOptions& options);

/// Whether RUN is an ONNX file of a float network, which LibTorch computes. Throws Error(usage) for options that such a
/// file does not take, or that no other target takes.
bool is_float_file(const Common& common, const MeasureOptions& options);

/// Declares how images become the input of a network that does not say it itself.
void add_image_options(CLI::App& command, ImageOptions& options);

/// Declares what of an ONNX file is taken: --outputs and --image-size.
void add_onnx_options(CLI::App& command, std::vector<std::string>& outputs, int& image_size);

/// How image files become the network's input.
Orientation orientation_of(const Int8Graph& graph);

/// Declares --images, which takes a number of images or, for a network's file, where images are; and --limit for those.
void add_images(CLI::App& command, int& images, std::vector<std::string>& pictures, const std::string& description);

/// Declares RUN, --checkpoint, --engine, --fallback, --images, --limit, --threads and what a float .onnx file needs.
void add_measure_options(CLI::App& command, MeasureOptions& options, const std::string& default_engines);

/// A run with its checkpoint and test images.
struct MeasuredRun {
  RunDirectory directory;
  Recipe recipe;
  std::string checkpoint;
  Int8Graph graph;
  RunData data;
  std::vector<std::string> engines;  ///< names of engines that this machine can run
  CompileOptions compile;            ///< with max_batch = recipe.evaluate.batch_size
  FloatFile float_file;              ///< of a float .onnx file, which has no engines; of others its program is null
};

/// Opens a run as the command line says. Without --engine, resolve_engines(engines) run, or the recipe's engines if
/// `engines` is empty. Throws Error(data) or Error(usage) if something is missing or does not fit.
MeasuredRun open_measured_run(const Common& common, const MeasureOptions& options,
                              const std::vector<std::string>& engines = {});

/// Opens a checkpoint or ONNX file like a run of default settings, whose test images are those that `pictures` returns
/// for the network. Throws as open_measured_run() does.
MeasuredRun open_measured_file(const Common& common, const MeasureOptions& options,
                               const std::vector<std::string>& engines,
                               const std::function<std::shared_ptr<const Dataset>(const Int8Graph&)>& pictures);

}  // namespace octet::cli
