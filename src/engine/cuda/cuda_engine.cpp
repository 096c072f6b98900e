#include "src/engine/cuda/cuda_engine.h"

#include "src/cuda/device.h"
#include "src/engine/cuda/cuda_program.h"
#include "src/engine/cuda/on_gpu.h"

namespace octet {

Support CudaEngine::available_on(int gpu) const {
  const GpuStatus& status = gpu_status(gpu);
  return {status.usable, status.reason};
}

Support CudaEngine::supports(const Int8Graph&, int) const { return {true, ""}; }  // a "direct" kernel runs the rest

std::unique_ptr<Program> CudaEngine::compile(const Int8Graph& graph, const CompileOptions& options) const {
  check(graph, options);
  return compile_on_gpu(options.gpu, [&] {
    const auto make_step = [&](const Lowering& lowering, int node) {
      return make_cuda_step(lowering, node, kernels_of_nodes(options.kernels));
    };
    return std::make_unique<CudaProgram>(graph, options, make_step, cuda_group_steps(options.kernels));
  });
}

}  // namespace octet
