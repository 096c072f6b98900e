// SPDX-License-Identifier: Apache-2.0
// Engine cudnn: convolutions by cuDNN's graph API, linears by cuBLASLt.
#include <fmt/format.h>

#include "kernels/conv/cuda_conv2d.h"
#include "src/cuda/device.h"
#include "src/engine/peers/cudnn/libraries.h"
#include "src/engine/peers/peer.h"
#include "src/engine/support.h"

namespace octet {
namespace {

class CudnnEngine final : public PeerEngine {
 public:
  std::string_view name() const override { return "cudnn"; }
  /// Also whether the loader finds cuDNN 9 and cuBLASLt 13.
  Support available_on(int gpu) const override {
    const GpuStatus& status = gpu_status(gpu);
    return status.usable ? cudnn_libraries() : Support{false, status.reason};
  }

 protected:
  std::string library() const override { return "cuDNN"; }
  std::vector<std::string> kernel_choices() const override { return {"auto", "heuristic"}; }

  std::string fault(const Int8Graph& graph, int node) const override {
    const Int8Node& n = graph.nodes[node];
    const auto few_bytes = [](const char* name, int channels) {
      return fmt::format("{}={}: cuDNN has no tensor-core int8 kernel for pixels of fewer than {} bytes", name,
                         channels, kPeerLanes);
    };
    if (const int channels = graph.nodes[n.inputs[0]].shape.c; !fills_lanes(channels)) return few_bytes("C", channels);
    if (n.op == Int8Op::linear) return "";
    if (std::string fault = padding_fault(n.window); !fault.empty()) return fault;
    if (n.groups != 1) {
      return fmt::format("groups={}: cuDNN has no depthwise int8 convolution, and grouped ones are not built here",
                         n.groups);
    }
    if (n.float_output) return "a convolution that writes float logits";
    return fills_lanes(n.shape.c) ? "" : few_bytes("K", n.shape.c);
  }

  std::unique_ptr<CudaStep> make_step(const Lowering& lowering, int node,
                                      const CompileOptions& options) const override {
    return lowering.graph.nodes[node].op == Int8Op::linear ? make_cudnn_linear_step(lowering, node)
                                                           : make_cudnn_conv_step(lowering, node, every_plan(options));
  }

  /// Builds all plans for max_batch images on all cores, before the steps ask for them one by one.
  void prepare(const Int8Graph& graph, const CompileOptions& options) const override {
    const Lowering lowering{graph, kernels::cuda_channel_stride};
    std::vector<FusedConvSpec> specs;
    for (int node = 0; node < static_cast<int>(graph.nodes.size()); ++node) {
      if (graph.nodes[node].op != Int8Op::conv2d || !supports(graph, node).ok) continue;
      specs.push_back(fused_conv_spec(lowering, node, options.max_batch));
      specs.back().every_plan = every_plan(options);
    }
    build_plans(specs);
  }

 private:
  static bool every_plan(const CompileOptions& options) { return options.kernels == "auto"; }
};

}  // namespace

const Engine& cudnn_engine() {
  static const CudnnEngine engine;
  return engine;
}

}  // namespace octet
