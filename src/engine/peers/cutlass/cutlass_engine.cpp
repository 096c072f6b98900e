// SPDX-License-Identifier: Apache-2.0
// Engine cutlass: convolutions from the templates of NVIDIA's CUTLASS for Hopper, compiled if OCTET_CUTLASS is on.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "src/cuda/device.h"
#include "src/engine/cuda/choice.h"
#include "src/engine/peers/peer.h"
#include "src/engine/support.h"

namespace octet {
namespace {

constexpr int kHopper = 90;    ///< sm_90a: code for wgmma runs on no other compute capability
constexpr int kMaxStride = 8;  ///< of TMA's im2col loads, whose corners are 8-bit numbers
constexpr int kMaxReach = 127;

/// Returns a text of everything that the time of a kernel depends on, except the GPU.
std::string signature(const FusedConvSpec& spec) {
  const kernels::Conv2dShape& s = spec.shape;
  const int numbers[] = {spec.images, s.in_c,     s.in_h,  s.in_w,  s.out_c,      s.kernel_h,   s.kernel_w,
                         s.stride_h,  s.stride_w, s.pad_h, s.pad_w, s.dilation_h, s.dilation_w, spec.residual};
  return fmt::format("{}", fmt::join(numbers, " "));
}

bool is_pointwise(const kernels::Conv2dShape& s) {
  return s.kernel_h == 1 && s.kernel_w == 1 && s.stride_h == 1 && s.stride_w == 1 && s.pad_h == 0 && s.pad_w == 0;
}

const CutlassKernel& fastest_kernel(const FusedConvSpec& spec, const FusedConvTensors& tensors, const Stream& stream) {
  static std::mutex mutex;
  static std::map<std::pair<int, std::string>, const CutlassKernel*> known;  // by GPU and signature
  const std::scoped_lock lock(mutex);
  const CutlassKernel*& chosen = known[{current_gpu(), signature(spec)}];
  if (chosen != nullptr) return *chosen;
  std::vector<const CutlassKernel*> candidates;
  std::vector<std::string> names;
  for (const CutlassKernel& kernel : cutlass_kernels()) {
    if (kernel.gemm && !is_pointwise(spec.shape)) continue;
    candidates.push_back(&kernel);
    names.push_back(kernel.name);
  }
  const size_t fastest =
      fastest_candidate(names, {.slow_ratio = kPlanSlowRatio}, [&](size_t candidate, double slow_ms) {
        const auto launch = [&] { candidates[candidate]->launch(spec, tensors, stream.get()); };
        return time_plan(stream, names[candidate],
                         [&] { return time_launches(stream, launch, {.runs = kPlanRuns, .slow_ms = slow_ms}); });
      });
  chosen = candidates[fastest];
  return *chosen;
}

/// A tile for one convolution.
class CutlassConv final : public FusedConv {
 public:
  CutlassConv(const CutlassKernel& kernel, const FusedConvSpec& spec) : kernel_(kernel), spec_(spec) {}
  std::string name() const override { return kernel_.name; }
  size_t workspace_bytes() const override { return 0; }
  void launch(const FusedConvTensors& tensors, CudaStream stream) const override {
    kernel_.launch(spec_, tensors, stream);
  }

 private:
  const CutlassKernel& kernel_;
  FusedConvSpec spec_;
};

std::string channels_fault(const char* name, int channels) {
  if (fills_lanes(channels)) return "";
  return fmt::format("{}={}: CUTLASS's kernels load and store multiples of {} bytes a pixel", name, channels,
                     kPeerLanes);
}

std::string window_fault(const Window& w) {
  if (std::string fault = padding_fault(w); !fault.empty()) return fault;
  const int stride = std::max(w.stride_h, w.stride_w), pad = std::max(w.pad.top, w.pad.left);
  const int reach = std::max((w.kernel_h - 1) * w.dilation_h, (w.kernel_w - 1) * w.dilation_w);
  if (stride > kMaxStride) return fmt::format("stride {}: im2col loads take {} at most", stride, kMaxStride);
  if (std::max(reach, pad) > kMaxReach) {
    return fmt::format("a window that reaches {} pixels, padded by {}: im2col loads take {} at most", reach, pad,
                       kMaxReach);
  }
  return "";
}

class CutlassEngine final : public PeerEngine {
 public:
  std::string_view name() const override { return "cutlass"; }
  /// Also whether the build has CUTLASS and the GPU compute capability 9.0.
  Support available_on(int number) const override {
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

 protected:
  std::string library() const override { return "CUTLASS"; }
  std::vector<std::string> kernel_choices() const override { return {"auto"}; }

  std::string fault(const Int8Graph& graph, int node) const override {
    const Int8Node& n = graph.nodes[node];
    if (n.float_output) return "float logits: not built here";
    std::string reason = channels_fault("C", graph.nodes[n.inputs[0]].shape.c);
    if (reason.empty()) reason = channels_fault("K", n.shape.c);
    if (!reason.empty() || n.op == Int8Op::linear) return reason;
    if (n.groups != 1)
      return fmt::format("groups={}: CUTLASS's implicit GEMM for Hopper has neither depthwise nor grouped", n.groups);
    return window_fault(n.window);
  }

  std::unique_ptr<CudaStep> make_step(const Lowering& lowering, int node, const CompileOptions&) const override {
    return make_cutlass_step(lowering, node);
  }
};

}  // namespace

const std::vector<CutlassKernel>& cutlass_kernels() {
  static const std::vector<CutlassKernel> kKernels = [] {
    std::vector<CutlassKernel> all;
#if OCTET_CUTLASS
    for (const auto kernels : {cutlass_pingpong_gemms, cutlass_cooperative_gemms, cutlass_persistent_convs,
                               cutlass_wide_implicit_gemms, cutlass_narrow_implicit_gemms}) {
      for (CutlassKernel& kernel : kernels()) all.push_back(std::move(kernel));
    }
#endif
    return all;
  }();
  return kKernels;
}

std::shared_ptr<const FusedConv> cutlass_conv(const FusedConvSpec& spec, const FusedConvTensors& tensors,
                                              const Stream& stream) {
  return std::make_shared<CutlassConv>(fastest_kernel(spec, tensors, stream), spec);
}

const Engine& cutlass_engine() {
  static const CutlassEngine engine;
  return engine;
}

}  // namespace octet
