// SPDX-License-Identifier: Apache-2.0
#include "tools/octet/measured_run.h"

#include <fmt/format.h>

#include <filesystem>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/base/threads.h"
#include "src/net/onnx/onnx.h"
#include "tools/octet/target.h"
#include "tools/octet/trained.h"

namespace octet::cli {
namespace {

bool among(const char* engine, const std::vector<std::string>& engines) {
  return std::find(engines.begin(), engines.end(), engine) != engines.end();
}

/// Throws for options that only a float .onnx file has.
void refuse_float_options(const MeasureOptions& options) {
  const std::string given = !options.outputs.empty() ? "--outputs"
                            : options.image_size > 0 ? "--image-size"
                                                     : options.image.first_given();
  if (!given.empty())
    throw usage_error(fmt::format(
        "{}: is for a float .onnx file; a run, a checkpoint and a quantized .onnx say themselves how images become "
        "the input: leave it out",
        given));
}

/// Throws for options that only a run directory has.
void refuse_run_options(const Common& common, const MeasureOptions& options) {
  if (!common.set.empty() || !options.checkpoint.empty())
    throw usage_error("--set and --checkpoint are for a run directory; a file is measured as it is");
}

}  // namespace

void check_fallback(const std::string& who, const std::string& fallback, const std::vector<std::string>& engines) {
  switch (fallback_fault(engines, fallback)) {
    case FallbackFault::none:
      return;
    case FallbackFault::missing:
      throw usage_error(who + "engine " + partial_engine(engines) +
                        " cannot run every layer (the input, for one): add --fallback cuda");
    case FallbackFault::useless:
      throw usage_error(who +
                        "--fallback is for engines cudnn and cutlass: add one to --engine, or leave --fallback out");
  }
}

void check_kernels(const std::string& who, const std::string& kernels, const std::vector<std::string>& engines) {
  if (kernels == "auto" || among("cpu", engines) || among("cuda", engines)) return;
  throw usage_error(who + "--kernels is for engines cpu and cuda: add one to --engine, or leave --kernels out");
}

bool is_measured_file(const MeasureOptions& options) {
  return (options.run.ends_with(".safetensors") || options.run.ends_with(".onnx")) &&
         !std::filesystem::is_directory(options.run);
}

bool is_float_file(const Common& common, const MeasureOptions& options) {
  const bool is_float = is_measured_file(options) && options.run.ends_with(".onnx") && has_onnx() &&
                        std::filesystem::exists(options.run) && is_float_onnx(options.run);
  if (!is_float) {
    refuse_float_options(options);
    return false;
  }
  if (!options.engines.empty() || options.fallback)
    throw usage_error(fmt::format(
        "{}: is a float network, which no engine runs: leave --engine and --fallback out, or make it int8 first: octet "
        "quantize {} --images FOLDER",
        options.run, shell_word(options.run)));
  refuse_run_options(common, options);
  return true;
}

Orientation orientation_of(const Int8Graph& graph) {
  return graph.preprocessing.exif_orientation ? Orientation::exif : Orientation::as_stored;
}

void add_images(CLI::App& command, int& images, std::vector<std::string>& image_paths, const std::string& description) {
  constexpr size_t kMostDigits = 9;
  const auto take = [&](const std::vector<std::string>& words) {
    const std::string& first = words.front();
    const bool digits = std::all_of(first.begin(), first.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (words.size() > 1 || !digits || first.size() > kMostDigits) {
      image_paths = words;
      return;
    }
    images = std::stoi(first);
    if (images < 1) throw CLI::ValidationError("--images", "a number of images is 1 or more");
  };
  command.add_option_function<std::vector<std::string>>("--images", take, description);
  command.add_option("--limit", images, "with --images FOLDER: only the first N of them")->check(CLI::PositiveNumber);
}

void add_image_options(CLI::App& command, ImageOptions& options) {
  command.add_option("--preset", options.preset, "how images become the input: imagenet, yolo, yolox, none");
  command.add_option("--resize", options.resize, "the shorter side before the centre crop; 0: no resize")
      ->check(CLI::Range(0, 10000));
  command.add_option("--fit", options.fit, "crop, stretch, letterbox, letterbox_corner");
  command.add_option("--order", options.order, "rgb or bgr");
  command.add_option("--mean", options.mean, "one for each channel, or one for all")->delimiter(',');
  command.add_option("--std", options.std, "likewise")->delimiter(',');
  command.add_option("--scale", options.scale, "1: mean and std are of pixels in 0..1; 255: in 0..255")
      ->check(CLI::IsMember({1, 255}));
  command.add_option("--orientation", options.orientation, "exif (default) or as_stored");
}

void add_onnx_options(CLI::App& command, std::vector<std::string>& outputs, int& image_size) {
  command
      .add_option("--image-size", image_size,
                  "height and width, where the network leaves them open or takes others too")
      ->check(CLI::Range(1, 10000));
  command.add_option("--outputs", outputs, "end the network at these values of the file")->delimiter(',');
}

void add_measure_options(CLI::App& command, MeasureOptions& options, const std::string& default_engines) {
  command.add_option("RUN", options.run, "a run directory, or with --images FOLDER a checkpoint or an .onnx file")
      ->required();
  command.add_option("--checkpoint", options.checkpoint, "another than the run's: " + checkpoint_help());
  command.add_option("--engine", options.engines, "engines, also auto (default: " + default_engines + ")")
      ->delimiter(',');
  add_fallback(command, options.fallback);
  add_images(command, options.images, options.image_paths,
             "of a run: only the first N test images; of a checkpoint: folders, .tar, files of images");
  command.add_option("--threads", options.threads, "0: all cores (default: the recipe's)")
      ->check(CLI::Range(0, kMostThreads));
  CLI::App* floats = command.add_option_group("of a float .onnx file");
  add_image_options(*floats, options.image);
  add_onnx_options(*floats, options.outputs, options.image_size);
}

MeasuredRun open_measured_run(const Common& common, const MeasureOptions& options,
                              const std::vector<std::string>& engines) {
  refuse_float_options(options);
  for (const std::string& key : common.set)
    if (!engines.empty() && key.starts_with("evaluate.engines="))
      throw usage_error("--set " + key + ": this command measures others than the recipe names; say --engine");
  if (!options.image_paths.empty())
    throw usage_error(
        "--images: names images for a checkpoint file; a run has test images, of which --images N takes "
        "the first N");
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
  // Images are prepared as the checkpoint says: an older octet, without these settings, may have written it.
  run.recipe.data.orientation = orientation_of(run.graph);
  run.data = open_run_data(run.recipe);
  run.data.evaluation_transform.even_margin = run.graph.preprocessing.even_margin;
  run.data.evaluation_transform.fit = run.graph.preprocessing.fit;
  run.data.evaluation_transform.order = run.graph.preprocessing.order;
  check_fits(run.graph, run.checkpoint, run.data);
  run.compile.max_batch = run.recipe.evaluate.batch_size;
  run.compile.threads = run.data.threads = options.threads.value_or(run.recipe.threads);
  run.compile.fallback =
      options.fallback.value_or(partial_engine(run.engines).empty() ? "none" : run.recipe.evaluate.fallback);
  check_fallback("", run.compile.fallback, run.engines);  // --engine names other engines than the recipe, perhaps
  return run;
}

MeasuredRun open_measured_file(const Common& common, const MeasureOptions& options,
                               const std::vector<std::string>& engines,
                               const std::function<std::shared_ptr<const Dataset>(const Int8Graph&)>& open_images) {
  MeasuredRun run;
  if (is_float_file(common, options)) {
    run.float_file = float_file(common, options, /*boxes=*/false);
    run.checkpoint = options.run;
    run.graph = run.float_file.ends;
  } else {
    refuse_run_options(common, options);
    run.engines = resolve_engines(options.engines.empty() ? engines : options.engines, devices(common));
    Checkpoint checkpoint = open_checkpoint(options.run);
    run.checkpoint = std::move(checkpoint.file);
    run.graph = std::move(checkpoint.graph);
  }
  run.recipe.model.name = run.graph.name;
  run.data.train_set = run.data.test_set = open_images(run.graph);
  for (const std::string& note : run.data.test_set->notes()) say("note: " + note);
  run.data.test.resize(run.data.test_set->size());
  std::iota(run.data.test.begin(), run.data.test.end(), size_t{0});
  run.data.evaluation_transform = evaluation_transform(run.graph.input_shape(), run.graph.preprocessing);
  run.compile.max_batch = run.recipe.evaluate.batch_size;
  run.compile.threads = run.data.threads = options.threads.value_or(0);
  run.compile.fallback = options.fallback.value_or("none");
  check_fallback("", run.compile.fallback, run.engines);
  return run;
}

}  // namespace octet::cli
