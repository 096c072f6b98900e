#include "src/engine/cuda/cuda_engine.h"

#include "src/cuda/device.h"
#include "src/engine/cuda/cuda_program.h"

namespace octet {

Support CudaEngine::available() const { return {gpu_status().usable, gpu_status().reason}; }

Support CudaEngine::supports(const Int8Graph&, int) const { return {true, ""}; }  // a "direct" kernel runs the rest

std::unique_ptr<Program> CudaEngine::compile(const Int8Graph& graph, const CompileOptions& options) const {
  check(graph, options);
  const auto make_step = [&](const Lowering& lowering, int node) {
    return make_cuda_step(lowering, node, kernels_of_nodes(options.kernels));
  };
  return std::make_unique<CudaProgram>(graph, options, make_step, cuda_group_steps(options.kernels));
}

}  // namespace octet
