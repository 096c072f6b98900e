#include "src/engine/cuda/on_gpu.h"

#include <utility>

#include "src/common/error.h"
#include "src/cuda/device.h"

namespace octet {
namespace {

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

}  // namespace

std::unique_ptr<Program> compile_on_gpu(int gpu, const std::function<std::unique_ptr<Program>()>& compile) {
  if (gpu == kCurrentGpu) gpu = current_gpu();
  const GpuGuard on_gpu(gpu);
  return std::make_unique<ProgramOnGpu>(gpu, compile());
}

}  // namespace octet
