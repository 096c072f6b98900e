#include "src/engine/cutlass/cutlass_engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/conv2d_int8/cuda_conv2d.h"
#include "src/common/error.h"
#include "src/cuda/device.h"
#include "src/engine/cuda/cuda_program.h"
#include "src/engine/cutlass/conv_step.h"
#include "src/engine/cutlass/kernel.h"
#include "src/engine/support.h"

namespace octet {
namespace {

constexpr int kHopper = 90;     ///< sm_90a: code for wgmma runs on no other
constexpr int kLanes = 16;      ///< bytes that strides of TMA's tensors are multiples of
constexpr int kMostStride = 8;  ///< of TMA's im2col loads; their corners are 8-bit numbers
constexpr int kMostReach = 127;
constexpr const char* kSigned = "quant.activation: symmetric_s8 in the recipe, --activation symmetric_s8 for bench";
constexpr const char* kMix =
    "engine cuda can run such nodes: evaluate.fallback: cuda in the recipe, --fallback cuda for bench and run; "
    "octet_load takes engine cuda for the whole network";

/// Why the kernels here cannot take this edge, or "".
std::string edge_fault(const Int8Node& node, const char* what) {
  if (!node.out.is_signed()) {
    return fmt::format("{} has uint8 codes; CUTLASS's templates for Hopper multiply int8 by int8 ({})", what, kSigned);
  }
  if (node.out.zero_point != 0) {
    return fmt::format("{} has zero point {}; CUTLASS pads with 0 ({})", what, node.out.zero_point, kSigned);
  }
  return "";
}

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
  if (n.op != Int8Op::conv2d && n.op != Int8Op::linear) {
    return fmt::format("{}: CUTLASS runs conv2d and linear here", int8_op_name(n.op));
  }
  if (n.float_output) return "float logits: not built here";
  // First: it is the reason why CUTLASS runs none of a network's nodes.
  std::string reason = edge_fault(graph.nodes[n.inputs[0]], "its input");
  if (reason.empty() && n.inputs.size() > 1) reason = edge_fault(graph.nodes[n.inputs[1]], "its residual");
  if (reason.empty()) reason = edge_fault(n, "its output");
  if (reason.empty()) reason = channels_fault("C", graph.nodes[n.inputs[0]].shape.c);
  if (reason.empty()) reason = channels_fault("K", n.shape.c);
  if (reason.empty() && n.op == Int8Op::conv2d && n.groups != 1) {
    reason = fmt::format("groups={}: CUTLASS's implicit GEMM for Hopper has neither depthwise nor grouped", n.groups);
  }
  if (reason.empty() && n.op == Int8Op::conv2d) reason = window_fault(n.window);
  return reason;
}

}  // namespace

Support CutlassEngine::available() const {
  if (cutlass_kernels().empty()) {
    return {false, "built without CUTLASS: configure with -DOCTET_CUTLASS=ON (src/engine/README.md)"};
  }
  const GpuStatus& gpu = gpu_status();
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
  const bool mixes = options.fallback == "cuda";
  if (!mixes && options.fallback != "none") {
    throw usage_error(fmt::format("engine cutlass: unknown fallback '{}'; allowed: none, cuda", options.fallback));
  }
  if (options.kernels != "auto") {
    throw usage_error(fmt::format("engine cutlass: unknown kernels '{}'; allowed: auto", options.kernels));
  }
  check_compile(*this, graph, options, {mixes ? &find_engine("cuda") : nullptr, mixes ? "" : kMix});
}

std::unique_ptr<Program> CutlassEngine::compile(const Int8Graph& graph, const CompileOptions& options) const {
  check(graph, options);
  return std::make_unique<CudaProgram>(graph, options, [&](const Lowering& lowering, int node) {
    return supports(lowering.graph, node).ok ? make_cutlass_step(lowering, node)
                                             : make_cuda_step(lowering, node, "auto");
  });
}

}  // namespace octet
