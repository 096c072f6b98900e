// SPDX-License-Identifier: Apache-2.0
// Engine cuda; runs of a CudaProgram, in one piece or in two halves, with or without a tap, and timing; and programs
// that stay on their GPU.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/cuda/device.h"
#include "src/engine/cuda/choice.h"
#include "src/engine/cuda/cuda_program.h"
#include "src/engine/support.h"

namespace octet {
namespace {

constexpr const char* kRunning = "running the network on the GPU";

}  // namespace

template <typename Work>
void CudaProgram::at_batch(int batch, const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    queue_.reset();
    try {
      stream_.wait("");
    } catch (const Error&) {  // the same failure
    }
    throw Error(error.code(), fmt::format("{}, {} images: {}", graph_.name, batch, error.what()));
  }
}

template <typename Copy>
void CudaProgram::hand_over(size_t node, int batch, void* to, const Copy& copy) {
  const size_t bytes = layers_[node].image_bytes * batch;
  if (layers_[node].image_bytes == graph_.nodes[node].image_bytes()) return copy(to, bytes);
  gapped_.resize(bytes);
  copy(gapped_.data(), bytes);
  close_gaps(node, batch, gapped_.data(), to);
}

void CudaProgram::run(const uint8_t* images, int batch, const OutputMemory& outputs, const NodeTap& tap) {
  check_run(batch, max_batch_, outputs, graph_.outputs.size());
  const BatchPlan& plan = plan_for(batch);
  at_batch(batch, [&] {
    host_.upload(images_.data(), images, graph_.input_shape().elements() * batch, stream_);
    if (tap) {
      run_with_tap(batch, tap);
    } else {
      plan.graph->replay(stream_.get());
    }
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      download(graph_.outputs[i], batch, outputs[i], kRunning);
    }
  });
}

void CudaProgram::submit(const uint8_t* images, int batch) {
  check_batch(batch, max_batch_);
  check_submit(queue_ ? queue_->size() : 0);
  const BatchPlan& plan = plan_for(batch);
  at_batch(batch, [&] {
    if (!queue_) {
      std::vector<size_t> bytes;
      for (const int output : graph_.outputs) bytes.push_back(layers_[output].image_bytes * max_batch_);
      queue_ = std::make_unique<BatchQueue>(graph_.input_shape().elements() * max_batch_, bytes);
    }
    queue_->upload(images, graph_.input_shape().elements() * batch, images_.data(), stream_);
    plan.graph->replay(stream_.get());
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const Layer& layer = layers_[graph_.outputs[i]];
      queue_->keep(i, layer.output, layer.image_bytes * batch, stream_);
    }
    queue_->push(batch, stream_);
  });
}

void CudaProgram::collect(const OutputMemory& outputs) {
  check_outputs(outputs, graph_.outputs.size());
  check_collect(queue_ ? queue_->size() : 0);
  at_batch(queue_->first_images(), [&] {
    const BatchQueue::Batch& done = queue_->pop(kRunning);
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      hand_over(graph_.outputs[i], done.images, outputs[i],
                [&](void* to, size_t bytes) { queue_->read(to, done.outputs[i], bytes, kRunning); });
    }
  });
}

void CudaProgram::run_with_tap(int batch, const NodeTap& tap) {
  for (size_t node = 0; node < layers_.size(); ++node) {
    // A node that another node's kernel computes in a run is shown by its own step.
    if (!launch_in_run(node, batch, /*alone=*/true)) launch(node, batch);
    show(tap, node, batch);
  }
}

void CudaProgram::close_gaps(size_t node, int batch, const uint8_t* from, void* to) const {
  const Shape& shape = graph_.nodes[node].shape;
  const size_t pixels = static_cast<size_t>(shape.h) * shape.w;
  const size_t bytes = graph_.nodes[node].image_bytes() / pixels, stride = layers_[node].image_bytes / pixels;
  for (size_t pixel = 0; pixel < pixels * batch; ++pixel) {
    std::copy_n(from + pixel * stride, bytes, static_cast<uint8_t*>(to) + pixel * bytes);
  }
}

void CudaProgram::download(size_t node, int batch, void* to, const char* what) {
  hand_over(node, batch, to,
            [&](void* host, size_t bytes) { host_.download(host, layers_[node].output, bytes, stream_, what); });
}

void CudaProgram::show(const NodeTap& tap, size_t node, int batch) {
  const size_t bytes = graph_.nodes[node].image_bytes() * batch;
  if (shown_.bytes() < bytes) shown_ = {}, shown_ = PinnedBuffer(bytes);
  at_node(node, [&] { download(node, batch, shown_.data(), "running it on the GPU"); });
  tap(static_cast<int>(node), shown_.data(), bytes);
}

std::vector<LayerInfo> CudaProgram::layers() const {
  std::vector<LayerInfo> layers;
  for (size_t node = 0; node < layers_.size(); ++node) {
    const int lookup = layers_[node].lookup;
    const CudaStep* step = layers_[lookup < 0 ? node : lookup].step.get();
    const char* beside = layers_[lookup < 0 ? node : lookup].beside.contains(max_batch_) ? "_beside" : "";
    layers.push_back(
        {graph_.nodes[node].name, step ? step->kernel(max_batch_) + beside : "alias", step ? step->engine() : ""});
  }
  for (const Layer& layer : layers_) {
    if (layer.lookup >= 0) layers[layer.lookup].kernel = "merged";
  }
  for (const CudaGroup& group : groups_) {
    const CudaStep* fused = group.fused(max_batch_);
    if (fused == nullptr) continue;
    for (const int node : group.group().nodes) layers[node].kernel = "merged";
    layers[group.first()].kernel = fused->kernel(max_batch_);
  }
  return layers;
}

std::vector<double> CudaProgram::time_on_device(int batch, int runs) {
  check_batch(batch, max_batch_);
  const BatchPlan& plan = plan_for(batch);
  upload_random_images(batch);
  return time_replays(*plan.graph, stream_, runs);
}

// Every node is launched once, in order, before it is timed: so its inputs are a run's, although layers share memory.
std::vector<double> CudaProgram::time_layers_on_device(int batch, int runs) {
  check_batch(batch, max_batch_);
  plan_for(batch);
  upload_random_images(batch);
  std::vector<double> medians(layers_.size());
  for (size_t node = 0; node < layers_.size(); ++node) {
    if (!launch_in_run(node, batch, /*alone=*/true)) continue;
    medians[node] = time_launches(stream_, [&] { launch_in_run(node, batch, /*alone=*/true); }, {.runs = runs});
  }
  return medians;
}

namespace {

/// A program whose GPU is current during every call.
class ProgramOnGpu final : public Program {
 public:
  ProgramOnGpu(int gpu, std::unique_ptr<Program> program) : gpu_(gpu), program_(std::move(program)) {}
  ~ProgramOnGpu() override {
    try {
      const GpuGuard on_gpu(gpu_);
      program_.reset();
    } catch (const Error&) {  // at the end of the process CUDA may be gone before the program: nothing to free there
    }
  }
  void run(const uint8_t* images, int batch, const OutputMemory& outputs, const NodeTap& tap) override {
    const GpuGuard on_gpu(gpu_);
    program_->run(images, batch, outputs, tap);
  }
  void submit(const uint8_t* images, int batch) override {
    const GpuGuard on_gpu(gpu_);
    program_->submit(images, batch);
  }
  void collect(const OutputMemory& outputs) override {
    const GpuGuard on_gpu(gpu_);
    program_->collect(outputs);
  }
  void prepare(int batch) override {
    const GpuGuard on_gpu(gpu_);
    program_->prepare(batch);
  }
  std::vector<LayerInfo> layers() const override { return program_->layers(); }
  size_t arena_bytes() const override { return program_->arena_bytes(); }
  std::vector<double> time_on_device(int batch, int runs) override {
    const GpuGuard on_gpu(gpu_);
    return program_->time_on_device(batch, runs);
  }
  std::vector<double> time_layers_on_device(int batch, int runs) override {
    const GpuGuard on_gpu(gpu_);
    return program_->time_layers_on_device(batch, runs);
  }

 private:
  int gpu_;
  std::unique_ptr<Program> program_;
};

/// Supports every node: a "direct" kernel runs the convolutions that no other takes.
class CudaEngine final : public Engine {
 public:
  std::string_view name() const override { return "cuda"; }
  Support available() const override { return available_on(kCurrentGpu); }
  Support available_on(int gpu) const override {
    const GpuStatus& status = gpu_status(gpu);
    return {status.usable, status.reason};
  }
  bool on_gpu() const override { return true; }
  /// Also throws Error(promise) if the GPU has no memory for options.max_batch images (the message says which batch
  /// would fit), or if no kernel that options.kernels allows runs a convolution of the graph.
  std::unique_ptr<Program> compile(const Int8Graph& graph, const CompileOptions& options) const override {
    check(graph, options);
    return compile_on_gpu(options.gpu, [&] {
      const auto make_step = [&](const Lowering& lowering, int node) {
        return make_cuda_step(lowering, node, kernels_of_nodes(options.kernels));
      };
      return std::make_unique<CudaProgram>(graph, options, make_step, cuda_group_steps(options.kernels));
    });
  }
};

}  // namespace

std::unique_ptr<Program> compile_on_gpu(int gpu, const std::function<std::unique_ptr<Program>()>& compile) {
  if (gpu == kCurrentGpu) gpu = current_gpu();
  const GpuGuard on_gpu(gpu);
  return std::make_unique<ProgramOnGpu>(gpu, compile());
}

const Engine& cuda_engine() {
  static const CudaEngine engine;
  return engine;
}

}  // namespace octet
