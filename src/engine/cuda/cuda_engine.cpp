// SPDX-License-Identifier: Apache-2.0
// Engine cuda, and programs that stay on their GPU.
#include <utility>

#include "src/base/error.h"
#include "src/cuda/device.h"
#include "src/engine/cuda/cuda_program.h"
#include "src/engine/support.h"

namespace octet {
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
