// SPDX-License-Identifier: Apache-2.0
// The flags of commands that run engines, and the run that evaluate and compare measure.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/data/image_options.h"
#include "src/engine/engine.h"
#include "src/recipe/recipe.h"
#include "src/recipe/run.h"
#include "tools/octet/commands.h"
#include "trainers/run/float_file.h"

namespace octet::cli {

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
  std::string run, checkpoint;           ///< an empty checkpoint is the run's own; run: a checkpoint, too
  std::vector<std::string> engines;      ///< empty: the command's default
  int images = 0;                        ///< number of test images, the first of all; 0: all
  std::vector<std::string> image_paths;  ///< of a checkpoint: where its images are
  std::optional<int> threads;            ///< default: the recipe's
  std::optional<std::string> fallback;   ///< for engines cudnn and cutlass; default: the recipe's
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
void add_images(CLI::App& command, int& images, std::vector<std::string>& image_paths, const std::string& description);

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

/// Opens a checkpoint or ONNX file like a run of default settings, whose test images are those that `open_images`
/// returns for the network. Throws as open_measured_run() does.
MeasuredRun open_measured_file(const Common& common, const MeasureOptions& options,
                               const std::vector<std::string>& engines,
                               const std::function<std::shared_ptr<const Dataset>(const Int8Graph&)>& open_images);

}  // namespace octet::cli
