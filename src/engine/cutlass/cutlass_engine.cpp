#include "src/engine/cutlass/cutlass_engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/conv2d_int8/cuda_conv2d.h"
#include "src/cuda/device.h"
#include "src/engine/cuda/cuda_program.h"
#include "src/engine/cuda/on_gpu.h"
#include "src/engine/cuda/peer.h"
#include "src/engine/cutlass/conv_step.h"
#include "src/engine/cutlass/kernel.h"

namespace octet {
namespace {

constexpr int kHopper = 90;     ///< sm_90a: code for wgmma runs on no other
constexpr int kLanes = 16;      ///< bytes that strides of TMA's tensors are multiples of
constexpr int kMostStride = 8;  ///< of TMA's im2col loads; their corners are 8-bit numbers
constexpr int kMostReach = 127;

std::string channels_fault(const char* name, int channels) {
  if (kernels::cuda_channel_stride(channels) % kLanes == 0) return "";
  return fmt::format("{}={}: CUTLASS's kernels load and store multiples of {} bytes a pixel", name, channels, kLanes);
}

std::string window_fault(const Window& w) {
  if (!w.pad.is_even()) return "another padding behind the image than before it: not built here";
  const int stride = std::max(w.stride_h, w.stride_w), pad = std::max(w.pad.top, w.pad.left);
  const int reach = std::max((w.kernel_h - 1) * w.dilation_h, (w.kernel_w - 1) * w.dilation_w);
  if (stride > kMostStride) return fmt::format("stride {}: im2col loads take {} at most", stride, kMostStride);
  if (std::max(reach, pad) > kMostReach) {
    return fmt::format("a window that reaches {} pixels, padded by {}: im2col loads take {} at most", reach, pad,
                       kMostReach);
  }
  return "";
}

std::string fault(const Int8Graph& graph, int node) {
  const Int8Node& n = graph.nodes[node];
  // First: it is the reason why CUTLASS runs none of a network's nodes.
  std::string reason = peer_fault(graph, node, "CUTLASS");
  if (reason.empty() && n.float_output) return "float logits: not built here";
  if (reason.empty()) reason = channels_fault("C", graph.nodes[n.inputs[0]].shape.c);
  if (reason.empty()) reason = channels_fault("K", n.shape.c);
  if (reason.empty() && n.op == Int8Op::conv2d && n.groups != 1) {
    reason = fmt::format("groups={}: CUTLASS's implicit GEMM for Hopper has neither depthwise nor grouped", n.groups);
  }
  if (reason.empty() && n.op == Int8Op::conv2d) reason = window_fault(n.window);
  return reason;
}

}  // namespace

Support CutlassEngine::available_on(int number) const {
  if (cutlass_kernels().empty()) {
    return {false, "built without CUTLASS: configure with -DOCTET_CUTLASS=ON (src/engine/README.md)"};
  }
  const GpuStatus& gpu = gpu_status(number);
  if (!gpu.usable) return {false, gpu.reason};
  if (gpu.capability != kHopper) {
    return {false, fmt::format("{} has compute capability {}.{}; these kernels of CUTLASS are for 9.0 (Hopper)",
                               gpu.name, gpu.capability / 10, gpu.capability % 10)};
  }
  return {true, ""};
}

Support CutlassEngine::supports(const Int8Graph& graph, int node) const {
  std::string reason = fault(graph, node);
  return {reason.empty(), std::move(reason)};
}

void CutlassEngine::check(const Int8Graph& graph, const CompileOptions& options) const {
  check_peer(*this, graph, options, {"auto"});
}

std::unique_ptr<Program> CutlassEngine::compile(const Int8Graph& graph, const CompileOptions& options) const {
  check(graph, options);
  return compile_on_gpu(options.gpu, [&] {
    const auto make_step = [&](const Lowering& lowering, int node) {
      return supports(lowering.graph, node).ok ? make_cutlass_step(lowering, node)
                                               : make_cuda_step(lowering, node, "auto");
    };
    return std::make_unique<CudaProgram>(graph, options, make_step, fallback_groups(*this));
  });
}

}  // namespace octet
