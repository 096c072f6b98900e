// SPDX-License-Identifier: Apache-2.0
#include "trainers/loop/failures.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <fmt/core.h>

#include <filesystem>

#include "src/data/loader.h"
#include "src/train/model/step_graph.h"
#include "trainers/loop/batches.h"

namespace octet {
namespace {

double gigabytes(size_t bytes) { return static_cast<double>(bytes) / 1e9; }

/// Runs steps on `images` images until a StepGraph has recorded one.
void run_steps(TrainStep& step, const BatchProbe& probe, long images) {
  const at::TensorOptions on_gpu(step.device());
  const Shape& shape = probe.shape;
  const at::Tensor batch =
      at::empty({images, shape.c, shape.h, shape.w}, on_gpu, at::MemoryFormat::ChannelsLast).zero_();
  std::vector<int64_t> labels_shape = probe.labels;
  labels_shape[0] = images;
  const at::Tensor labels = at::zeros(labels_shape, on_gpu.dtype(at::kLong));
  StepGraph graph(probe.recorded);
  for (int i = 0; i <= StepGraph::kWarmUps; ++i)
    graph.run(/*mode=*/0, [&] { step.launch(batch, labels, {.observe = probe.observes}); });
}

/// Returns the peak of memory in tensors while steps run on `images` images.
double bytes_of_step(TrainStep& step, BatchProbe probe, long images) {
  probe.recorded = false;
  forget_peak(step.device());
  run_steps(step, probe, images);
  return static_cast<double>(peak_gpu_memory(step.device()).in_tensors);
}

bool runs(TrainStep& step, const BatchProbe& probe, long images) {
  bool ran = true;
  try {
    run_steps(step, probe, images);
  } catch (const c10::OutOfMemoryError&) {
    ran = false;
  }
  step.free_gradients();
  release_cached(step.device());
  return ran;
}

/// Rounds down to a multiple of 8, which convolutions run fastest on.
long multiple_of_8(long images) { return images < 8 ? images : images / 8 * 8; }

}  // namespace

std::string kept_state(const Phase& phase) {
  const bool saved = std::filesystem::exists(phase.checkpoint);
  return saved ? "The last good state is kept in " + phase.checkpoint + ": continue with --resume"
               : "No state was saved yet";
}

Diverged diverged(const Phase& phase, const Position& position, const std::string& what, const std::string& where) {
  const std::string place = position.finished ? "after the last epoch"
                                              : fmt::format("epoch {}, step {}", position.epoch + 1, position.step + 1);
  const std::string section = phase.name == "float" ? "train" : "qat";
  const double rate = phase.recipe->learning_rate;
  const std::string anew =
      phase.anew.empty() ? "" : fmt::format(": {} --set {}.learning_rate={:g}", phase.anew, section, rate / 10);
  return {fmt::format("phase {}, {}: training diverged: {}; first at {}", phase.name, place, what, where),
          fmt::format("Lower {}.learning_rate, now {:g}{}. {}.warmup_epochs and {}.clip_gradient help, too", section,
                      rate, anew, section, section),
          position.epoch};
}

std::string first_non_finite_layer(const Phase& phase, const at::Tensor& x, const WalkMode& mode) {
  const bool qat = phase.quantized != nullptr;
  const std::string found = first_non_finite(phase.trained_graph(), *phase.weights, x, mode);
  return !found.empty() ? found : qat ? "a fake quantizer" : "the loss itself";
}

std::string non_finite_output(const Phase& phase, const RunData& data) {
  constexpr size_t kImages = 8;
  const std::vector<size_t> indices(data.train.begin(),
                                    data.train.begin() + static_cast<long>(std::min(kImages, data.train.size())));
  Loader loader(*data.train_set, indices, data.evaluation_transform,
                {.batch_size = static_cast<int>(indices.size()), .workers = 0});
  Batch batch;
  loader.next(batch);
  const at::Tensor x = network_input(batch, data, phase.device());
  const FullPrecision full;
  return first_non_finite(phase.trained_graph(), *phase.weights, x, {});
}

void require_finite(const Phase& phase, const Position& done) {
  Position position = done;
  position.step = std::max(0L, position.step - 1);
  try {
    if (phase.quantized != nullptr) phase.quantized->require_finite();
  } catch (const Error& error) {
    throw diverged(phase, position, "an observer met a value that is not finite", error.what());
  }
  for (const auto& [name, tensor] : *phase.weights)
    if (!tensor.detach().isfinite().all().item<bool>())
      throw diverged(phase, position, "a weight is not finite", "weights '" + name + "'");
}

Error failed(const Phase& phase, const Position& position, const std::string& what) {
  return promise_error(fmt::format("phase {}, epoch {}, step {}: {}. {}", phase.name, position.epoch + 1,
                                   position.step + 1, what, kept_state(phase)));
}

Error validation_failed(const Phase& phase, const Position& position, const std::string& what) {
  return promise_error(fmt::format("phase {}, validation after epoch {}: {}. {}", phase.name, position.epoch + 1, what,
                                   kept_state(phase)));
}

Error out_of_memory(const Phase& phase, const Position& position, const GpuMemory& then, std::optional<long> fitting) {
  const std::string key = (phase.name == "float" ? "train" : phase.name) + ".batch_size";
  const std::string cure = !fitting       ? fmt::format("take a smaller {}, or cuda.resident_images: off", key)
                           : *fitting > 0 ? fmt::format("{} {} should fit", key, *fitting)
                                          : "not even a few images fit: free the GPU, or take a smaller model or image";
  return failed(
      phase, position,
      fmt::format("the GPU is out of memory with batch_size {}: this run held {:.2f} GB, {:.2f} of {:.2f} GB "
                  "were left to it; {}",
                  phase.recipe->batch_size, gigabytes(then.held), gigabytes(then.free), gigabytes(then.total), cure));
}

std::optional<long> batch_that_fits(TrainStep& step, const BatchProbe& probe) {
  const long parts = probe.micro_batches;
  // At least two images in each part: BatchNorm of a map of one pixel cannot work with one.
  const long some = std::max(2L, 4 / parts) * parts, many = some + (8 + parts - 1) / parts * parts;
  try {
    step.free_gradients();
    release_cached(step.device());
    at::globalContext().setBenchmarkCuDNN(false);  // benchmarking tries workspaces of any size
    const GpuMemory memory = gpu_memory(step.device());
    const double few = bytes_of_step(step, probe, some), more = bytes_of_step(step, probe, many);
    const double image = (more - few) / static_cast<double>(many - some),
                 fixed = few - static_cast<double>(some) * image;
    if (!(image > 0)) return std::nullopt;
    const size_t all = memory.held + memory.free;
    const double fits =
        std::clamp((static_cast<double>(all) - fixed) / image, 0.0, static_cast<double>(probe.batch_size));
    long images = multiple_of_8(static_cast<long>(fits) / parts);  // of a micro-batch
    while (images > 0 && !runs(step, probe, images * parts)) images = multiple_of_8(images * 4 / 5);
    // Batch size and free memory decide which convolutions LibTorch takes and how memory is fragmented: nine tenths of
    // a batch that had run failed on an H200.
    return multiple_of_8(images * 3 / 4) * parts;
  } catch (const c10::OutOfMemoryError&) {
    return 0;
  } catch (const std::exception&) {  // a library found no room for its workspace; the caller reports the first failure
    return std::nullopt;
  }
}

}  // namespace octet
