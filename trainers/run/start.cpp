// SPDX-License-Identifier: Apache-2.0
// Before a run starts: what is refused, so that it is not refused after the float phase, and the run's directory.
#include <fmt/core.h>
#include <torch/version.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/net/shapes.h"
#include "src/quant/plan.h"
#include "src/train/qat/quantizers.h"
#include "trainers/gpu.h"
#include "trainers/loop/batches.h"
#include "trainers/loop/optimizer.h"
#include "trainers/parallel/stages.h"
#include "trainers/run/measure.h"
#include "trainers/run/run.h"

namespace octet {
namespace {

namespace fs = std::filesystem;

/// Whether the folder holds a file. A start on a full disk leaves empty folders, which do not count.
bool holds_a_file(const std::string& folder) {
  if (!fs::exists(folder)) return false;
  const fs::recursive_directory_iterator all(folder);
  return std::any_of(begin(all), end(all), [](const fs::directory_entry& entry) { return !entry.is_directory(); });
}

void make_folders(const RunDirectory& directory) {
  std::error_code error;
  fs::create_directories(directory.checkpoints(), error);
  if (error) throw data_error(fmt::format("{}: cannot make this folder: {}", directory.checkpoints(), error.message()));
}

/// Refuses a recipe that is not the run's own. `evaluate` may differ, for a machine with other engines, and which
/// epochs are validated.
void check_same_recipe(const RunDirectory& directory, const Recipe& recipe) {
  if (!fs::exists(directory.recipe())) {
    throw usage_error(fmt::format("{}: --resume, but there is no run (no recipe.yaml)", directory.root));
  }
  if (training_part(read_run_recipe(directory.recipe())) != training_part(recipe)) {
    throw usage_error(
        fmt::format("{}: --resume with another recipe than the run's own {} (only `evaluate` and `val_interval` may "
                    "differ); pass that file, or train into another --out",
                    directory.root, directory.recipe()));
  }
}

/// Warns if the run goes on on another device than it began on: that is allowed, but does not end with the same bytes.
void tell_another_device(const RunDirectory& directory, at::Device device) {
  if (!fs::exists(directory.environment())) return;
  const auto environment = nlohmann::json::parse(read_file(directory.environment()), nullptr, /*exceptions=*/false);
  const std::string began = environment.is_object() ? environment.value("device", "") : "", now = device_name(device);
  if (began.empty() || began == now) return;
  say(
      fmt::format("warning: this run began on {} and goes on on {}: it will not end with the bytes of a run on one "
                  "device",
                  began, now));
}

/// Refuses parallel.stages if the network cannot be cut there, in QAT too, or if the number of processes does not fit.
void require_stages(const Run& run) {
  const std::vector<std::string>& layers = run.recipe.parallel.stages;
  const Graph fused = fuse(run.graph);
  stages_of(fused, layers);
  if (run.recipe.qat.epochs > 0) stages_of(prepare(fused, quant_spec(run.recipe.quant)).graph, layers);
  if (const Labels labels = run.data.task().labels; labels != Labels::image)
    throw usage_error(fmt::format(
        "parallel.stages: with data.labels: {0} micro-batches have other numbers of labelled {0}, and their "
        "mean loss is not the batch's; leave the stages out",
        name_in(kLabels, labels)));
  if (!run.ranks) return;
  if (const int stages = static_cast<int>(layers.size()) + 1; run.ranks->size() % stages != 0)
    throw usage_error(
        fmt::format("parallel.stages: with {} there are {} stages, a process each, but {} were started; start {}, or a "
                    "multiple of it",
                    counted(static_cast<long>(layers.size()), "cut"), stages, run.ranks->size(), stages));
  require_stage_precision(run.recipe.train, "train", run.device);
  require_stage_precision(run.recipe.qat, "qat", run.device);
}

/// Refuses sizes of batches that the network does not take, or answers for in other proportions.
void require_sizes(const Run& run) {
  const Transform& t = run.data.train_transform;
  if (t.multi_scale == 0) return;
  if (run.recipe.qat.epochs > 0 && run.recipe.qat.forward == QatForward::int8)
    throw usage_error(
        "data.multi_scale: qat.forward: int8 has kernels for one size of images; leave multi_scale out, or set "
        "qat.forward: simulation");
  const std::vector<ImageSize> sizes = input_sizes(t);
  if (sizes.size() == 1)
    throw usage_error(
        fmt::format("data.multi_scale: {:g} leaves one size, {}x{}: sizes are multiples of up to 32 pixels; take more, "
                    "or leave it out",
                    t.multi_scale, t.height, t.width));
  for (const ImageSize& size : sizes) {
    Graph graph = run.graph;
    graph.nodes.front().shape.h = size.height;
    graph.nodes.front().shape.w = size.width;
    const auto refuse = [&](const std::string& why) {
      throw usage_error(fmt::format("data.multi_scale: the network does not take images of {}x{}: {}; leave it out",
                                    size.height, size.width, why));
    };
    try {
      infer_shapes(graph);
    } catch (const Error& error) {
      refuse(error.what());
    }
    for (const int output : graph.outputs) {
      const Shape &own = run.graph.nodes[output].shape, &now = graph.nodes[output].shape;
      if (own.h * size.height != now.h * t.height || own.w * size.width != now.w * t.width)
        refuse(fmt::format("its output '{}' becomes {}, {} of {}x{}", graph.nodes[output].name, to_string(now),
                           to_string(own), t.height, t.width));
    }
  }
}

/// Says what qat.recompute does not spare.
void tell_what_is_kept(const Graph& graph) {
  const auto kept = std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                  [](const Node& node) { return node.op == Op::conv2d && !node.window.pad.is_even(); });
  if (kept > 0) say(fmt::format("note: qat.recompute: {} convolutions keep their inputs: uneven padding", kept));
}

}  // namespace

void require_stage_precision(const OptimizerRecipe& recipe, const char* name, at::Device device) {
  if (recipe.epochs > 0 && recipe.precision != Precision::fp32 && device.is_cpu())
    throw usage_error(fmt::format("{}.precision {}: on CPUs stages exchange fp32; --set {}.precision=fp32", name,
                                  name_in(kPrecisions, recipe.precision), name));
}

void require_trainable(const Run& run) {
  require_sizes(run);
  const ParallelRecipe& parallel = run.recipe.parallel;
  const bool staged = !parallel.stages.empty();
  if (staged) require_stages(run);
  const int shares = batch_share(run.ranks.get(), parallel.stages).shares;
  const int parts = staged ? shares * parallel.micro_batches : shares;
  const auto require_phase = [&](const OptimizerRecipe& recipe, const char* name) {
    if (recipe.epochs == 0) return;
    if (shares > 1 && recipe.batch_size % parts != 0)
      throw usage_error(fmt::format("{}.batch_size {}: {} {} share each batch{}, so it must be a multiple of {}", name,
                                    recipe.batch_size, shares, staged ? "replicas" : "processes",
                                    staged ? " in micro-batches" : "", parts));
    const long steps = steps_per_epoch(recipe, run.data.train.size(), name);
    try {
      make_schedule(recipe, steps, run.data.mosaic_off);
    } catch (const Error& error) {
      throw usage_error(fmt::format("{}.{}", name, error.what()));
    }
    require_batches(
        run.data,
        {.batch_size = recipe.batch_size, .device = run.device, .resident_images = run.recipe.cuda.resident_images});
  };
  require_phase(run.recipe.train, "train");
  require_phase(run.recipe.qat, "qat");
  if (run.ranks && run.recipe.calibrate.channel_scales == ScaleChannels::on)
    throw usage_error(
        "calibrate.channel_scales: true is chosen in one process; leave it out with several processes, or --gpus");
  const bool observes = run.recipe.qat.epochs > 0 && edge_scales(run) == EdgeScales::observed;
  if (run.ranks && observes) {
    if (run.device.is_cuda())
      throw usage_error(
          "quant.scales: observed follows one process's images on a GPU; with several processes take fixed or lsq");
    if (run.recipe.quant.observer == ObserverKind::histogram)
      throw usage_error(
          "quant.observer: histogram would count each process's own images; with several processes take "
          "moving_average or minmax");
  }
  if (observes) require_observer(run.recipe.quant.observer, run.device.type());
  if (run.recipe.qat.recompute && !run.device.is_cuda())
    throw usage_error("qat.recompute: true spares a GPU's memory; leave it out on the CPU");
  if (run.recipe.qat.recompute && learn(edge_scales(run)))
    throw usage_error(
        "qat.recompute: true makes nothing again whose range learns; set quant.scales: fixed or observed");
  if (run.recipe.qat.recompute) tell_what_is_kept(fuse(run.graph));
  if (run.recipe.qat.epochs > 0 && run.recipe.qat.forward == QatForward::int8) {
    if (run.ranks)
      throw usage_error("qat.forward: int8 trains in one process; leave --gpus out, or set qat.forward: simulation");
    require_int8_forward(prepare(fuse(run.graph), quant_spec(run.recipe.quant)), edge_scales(run), run.device.type());
    try {
      require_engines_take_it(run, {"cuda"});
    } catch (const Error& error) {
      throw usage_error(
          fmt::format("qat.forward: int8 trains on engine cuda: {}; set qat.forward: simulation", error.what()));
    }
  }
}

std::map<std::string, std::string> versions() {
  return {{"octet", OCTET_VERSION}, {"torch", TORCH_VERSION}, {"compiler", __VERSION__}};
}

FolderLock start_run_directory(const RunDirectory& directory, const Recipe& recipe, const RunStart& start) {
  if (start.resume) {
    check_same_recipe(directory, recipe);
    make_folders(directory);
    FolderLock lock(directory.root);
    tell_another_device(directory, start.device);
    write_file_atomically(directory.recipe(), write_recipe(recipe));
    write_file_atomically(directory.command(), read_file(directory.command()) + start.command + "\n");
    return lock;
  }
  if (holds_a_file(directory.root)) {
    throw usage_error(fmt::format("{}: already holds files; continue that run with --resume, or choose another --out",
                                  directory.root));
  }
  make_folders(directory);
  FolderLock lock(directory.root);
  write_file_atomically(directory.recipe(), write_recipe(recipe));
  write_file_atomically(directory.command(), start.command + "\n");
  const nlohmann::json environment = {{"versions", versions()},
                                      {"seed", recipe.seed},
                                      {"machine", start.machine},
                                      {"device", device_name(start.device)},
                                      {"recipe_hash", recipe_hash(recipe)}};
  write_file_atomically(directory.environment(), environment.dump(2) + "\n");
  return lock;
}

void require_free_name(const RunDirectory& directory, const std::string& file) {
  for (const std::string& other : directory.other_weights()) {
    if (fs::weakly_canonical(file) != fs::weakly_canonical(other)) continue;
    throw usage_error(
        fmt::format("{}: holds other weights of this run; name another file for the int8 checkpoint "
                    "(export.file in the recipe, or --out)",
                    file));
  }
}

RunDirectory new_run_directory(const std::string& parent, const std::string& name) {
  for (int number = 1;; ++number) {
    RunDirectory directory{fmt::format("{}/{}-{}", parent, name, number)};
    if (!fs::exists(directory.root)) return directory;
  }
}

}  // namespace octet
