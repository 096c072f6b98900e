#include "trainers/loop/gpu_failure.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <fmt/core.h>

#include <algorithm>

#include "src/model/step_graph.h"
#include "trainers/loop/diverged.h"

namespace octet {
namespace {

double gigabytes(size_t bytes) { return static_cast<double>(bytes) / 1e9; }

/// Runs as many steps on `images` images as a StepGraph launches until it has recorded one.
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

/// The most that tensors take while a step runs on `images` images.
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

/// Sizes that convolutions like.
long whole_eights(long images) { return images < 8 ? images : images / 8 * 8; }

}  // namespace

Error failed(const Phase& phase, const Position& position, const std::string& what) {
  return promise_error(fmt::format("phase {}, epoch {}, step {}: {}. {}", phase.name, position.epoch + 1,
                                   position.step + 1, what, kept_state(phase)));
}

Error validation_failed(const Phase& phase, const Position& position, const std::string& what) {
  return promise_error(fmt::format("phase {}, validation after epoch {}: {}. {}", phase.name, position.epoch + 1, what,
                                   kept_state(phase)));
}

void rethrow_explained() try { throw; } catch (const c10::OutOfMemoryError& error) {
  throw promise_error(
      fmt::format("the GPU is out of memory; lower calibrate.batch_size or evaluate.batch_size, or free the GPU ({})",
                  error.what_without_backtrace()));
} catch (const c10::Error& error) {
  throw promise_error(fmt::format("LibTorch: {}", error.what_without_backtrace()));
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
  // Two pictures at least in each: BatchNorm behind a map of one pixel cannot do with one.
  const long some = std::max(2L, 4 / parts) * parts, many = some + (8 + parts - 1) / parts * parts;
  try {
    step.free_gradients();
    release_cached(step.device());
    at::globalContext().setBenchmarkCuDNN(false);  // which tries workspaces of any size
    const GpuMemory memory = gpu_memory(step.device());
    const double few = bytes_of_step(step, probe, some), more = bytes_of_step(step, probe, many);
    const double image = (more - few) / static_cast<double>(many - some),
                 fixed = few - static_cast<double>(some) * image;
    if (!(image > 0)) return std::nullopt;
    const size_t all = memory.held + memory.free;
    const double fits =
        std::clamp((static_cast<double>(all) - fixed) / image, 0.0, static_cast<double>(probe.batch_size));
    long images = whole_eights(static_cast<long>(fits) / parts);  // of a micro-batch
    while (images > 0 && !runs(step, probe, images * parts)) images = whole_eights(images * 4 / 5);
    // Which convolutions LibTorch takes, and so into what fragments memory breaks, depends on the batch size and on
    // what is free: nine tenths of a batch that had run have failed on an H200.
    return whole_eights(images * 3 / 4) * parts;
  } catch (const c10::OutOfMemoryError&) {
    return 0;
  } catch (const std::exception&) {  // a library without room for its workspace; the caller tells of the first failure
    return std::nullopt;
  }
}

}  // namespace octet
