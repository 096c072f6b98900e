#include "src/engine/cutlass/conv_step.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <mutex>
#include <utility>

#include "src/cuda/device.h"
#include "src/engine/cuda/fastest_candidate.h"
#include "src/engine/cuda/peer_conv.h"
#include "src/engine/cuda/timing.h"
#include "src/engine/cudnn/library_plan.h"
#include "src/engine/cutlass/kernel.h"

namespace octet {
namespace {

constexpr int kTimedReplays = 5;
constexpr double kSlowRatio = 3;  ///< times the best so far: measured only once

/// Everything that the time of a kernel depends on, but the GPU.
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
  const size_t fastest = fastest_candidate(names, {.slow_ratio = kSlowRatio}, [&](size_t candidate, double slow_ms) {
    const auto launch = [&] { candidates[candidate]->launch(spec, tensors, stream.get()); };
    return time_plan(stream, names[candidate],
                     [&] { return time_launches(stream, launch, {.runs = kTimedReplays, .slow_ms = slow_ms}); });
  });
  chosen = candidates[fastest];
  return *chosen;
}

class CutlassConvStep final : public CudaStep {
 public:
  CutlassConvStep(const Lowering& lowering, int node) : conv_(lowering, node) {}

  std::string engine() const override { return "cutlass"; }
  std::string kernel(int images) const override { return "cutlass_" + kernels_.at(images)->name; }

  void prepare(const CudaStepData& data, const Stream& stream) override {
    conv_.upload(stream);
    kernels_[data.images] = &fastest_kernel(conv_.spec(data.images), conv_.tensors(data), stream);
  }

  size_t constant_bytes() const override { return conv_.constant_bytes(); }

  void launch(const CudaStepData& data, CudaStream stream) const override {
    kernels_.at(data.images)->launch(conv_.spec(data.images), conv_.tensors(data), stream);
  }

 private:
  PeerConv conv_;
  std::map<int, const CutlassKernel*> kernels_;  ///< by number of images
};

}  // namespace

std::unique_ptr<CudaStep> make_cutlass_step(const Lowering& lowering, int node) {
  return std::make_unique<CutlassConvStep>(lowering, node);
}

}  // namespace octet
