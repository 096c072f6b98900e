#include "src/engine/cudnn/cudnn_engine.h"

#include <fmt/format.h>

#include "kernels/conv2d_int8/cuda_conv2d.h"
#include "src/engine/cuda/cuda_program.h"
#include "src/engine/cuda/on_gpu.h"
#include "src/engine/cuda/peer.h"
#include "src/engine/cudnn/cudnn_steps.h"
#include "src/engine/cudnn/libraries.h"

namespace octet {
namespace {

constexpr int kLanes = 16;  ///< channels that one 16-byte access reads

std::string fault(const Int8Graph& graph, int node) {
  const Int8Node& n = graph.nodes[node];
  // First: it is the reason why cuDNN runs none of a network's nodes.
  if (std::string fault = peer_fault(graph, node, "cuDNN"); !fault.empty()) return fault;
  const int channels = graph.nodes[n.inputs[0]].shape.c;
  if (kernels::cuda_channel_stride(channels) % kLanes != 0) {
    return fmt::format("C={}: cuDNN has no tensor-core int8 kernel for pixels of fewer than {} bytes", channels,
                       kLanes);
  }
  if (n.op == Int8Op::conv2d) {
    if (!n.window.pad.is_even()) return "another padding behind the image than before it: not built here";
    if (n.groups != 1) {
      return fmt::format("groups={}: cuDNN has no depthwise int8 convolution, and grouped ones are not built here",
                         n.groups);
    }
    if (n.float_output) return "a convolution that writes float logits";
    if (kernels::cuda_channel_stride(n.shape.c) % kLanes != 0) {
      return fmt::format("K={}: cuDNN has no tensor-core int8 kernel for pixels of fewer than {} bytes", n.shape.c,
                         kLanes);
    }
  }
  return "";
}

/// For max_batch images; cuDNN compiles their kernels on all cores before the steps ask for them one by one.
void build_all_plans(const CudnnEngine& engine, const Int8Graph& graph, int images, bool every_plan) {
  const Lowering lowering{graph, kernels::cuda_channel_stride};
  std::vector<FusedConvSpec> specs;
  for (int node = 0; node < static_cast<int>(graph.nodes.size()); ++node) {
    if (graph.nodes[node].op == Int8Op::conv2d && engine.supports(graph, node).ok) {
      specs.push_back(fused_conv_spec(lowering, node, images));
      specs.back().every_plan = every_plan;
    }
  }
  build_plans(specs);
}

}  // namespace

Support CudnnEngine::available_on(int gpu) const {
  const GpuStatus& status = gpu_status(gpu);
  return status.usable ? cudnn_libraries() : Support{false, status.reason};
}

Support CudnnEngine::supports(const Int8Graph& graph, int node) const {
  std::string reason = fault(graph, node);
  return {reason.empty(), std::move(reason)};
}

void CudnnEngine::check(const Int8Graph& graph, const CompileOptions& options) const {
  check_peer(*this, graph, options, {"auto", "heuristic"});
}

std::unique_ptr<Program> CudnnEngine::compile(const Int8Graph& graph, const CompileOptions& options) const {
  check(graph, options);
  return compile_on_gpu(options.gpu, [&] {
    const bool every_plan = options.kernels == "auto";
    build_all_plans(*this, graph, options.max_batch, every_plan);
    const auto make_step = [&](const Lowering& lowering, int node) {
      if (!supports(lowering.graph, node).ok) return make_cuda_step(lowering, node, "auto");
      return lowering.graph.nodes[node].op == Int8Op::linear ? make_cudnn_linear_step(lowering, node)
                                                             : make_cudnn_conv_step(lowering, node, every_plan);
    };
    return std::make_unique<CudaProgram>(graph, options, make_step, fallback_groups(*this));
  });
}

}  // namespace octet
