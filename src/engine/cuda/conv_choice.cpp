#include "src/engine/cuda/conv_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <vector>

#include "src/common/error.h"
#include "src/cuda/memory.h"
#include "src/cuda/this_gpu.h"
#include "src/engine/cuda/fastest_candidate.h"
#include "src/engine/cuda/remembered_choice.h"
#include "src/engine/cuda/timing.h"

namespace octet {
namespace {

using kernels::CudaConv2d;

constexpr CandidateSearch kSearch{.slow_ratio = 2, .milliseconds = 120};
constexpr int kRuns = 7;

std::vector<CudaConv2d> allowed_choices(const ConvProblem& problem, const std::string& allowed) {
  std::vector<CudaConv2d> choices;
  std::string names;
  for (CudaConv2d& conv : kernels::cuda_conv2d_choices(problem.shape, problem.params, problem.weights,
                                                       problem.tensors.images, this_gpu())) {
    names += (names.empty() ? "" : ", ") + conv.name;
    if (allowed == "auto" || conv.name.find(allowed) != std::string::npos) choices.push_back(std::move(conv));
  }
  if (choices.empty()) {
    throw promise_error(fmt::format("no kernel '{}' runs this convolution of {} images; those that do: {}", allowed,
                                    problem.tensors.images, names));
  }
  return choices;
}

size_t output_bytes(const ConvProblem& problem) {
  const kernels::Conv2dShape& s = problem.shape;
  return static_cast<size_t>(problem.tensors.images) * s.out_h * s.out_w * s.out_stride *
             (problem.params.y.float_output ? sizeof(float) : 1) +
         kernels::kCudaReadSlack;
}

MeasuredChoice fastest(const ConvProblem& problem, const std::vector<CudaConv2d>& choices,
                       const std::vector<std::string>& names, const Stream& stream) {
  std::map<int, std::vector<uint8_t>> packed;  // by variant
  size_t packed_bytes = 0, workspace_bytes = 0;
  for (const CudaConv2d& conv : choices) {
    if (!packed.contains(conv.variant))
      packed[conv.variant] = kernels::cuda_conv2d_pack(conv, problem.shape, problem.params, problem.weights);
    packed_bytes = std::max(packed_bytes, packed[conv.variant].size());
    workspace_bytes =
        std::max(workspace_bytes, kernels::cuda_conv2d_workspace(conv, problem.shape, problem.tensors.images));
  }
  const DeviceBuffer constants(packed_bytes, "weights");
  const DeviceBuffer workspace(workspace_bytes, "partial sums of a convolution");
  if (workspace_bytes > 0) fill_device(workspace.data(), 0, workspace_bytes, stream.get());
  kernels::CudaConv2dData tensors = problem.tensors;
  tensors.packed = constants.data();
  tensors.workspace = workspace.data();
  // The output may lie where what `before` reads lay. Apart from that, it stays what a run leaves there; where there is
  // no room for it, a convolution is timed behind itself, which is nothing to keep for later processes.
  DeviceBuffer apart;
  bool behind = problem.before != nullptr, room = true;
  if (behind) {
    try {
      apart = DeviceBuffer(output_bytes(problem), "a convolution's output apart");
      tensors.y = apart.data();
    } catch (const OutOfGpuMemory&) {
      behind = room = false;
    }
  }

  const size_t best = fastest_candidate(names, kSearch, [&](size_t candidate, double slow_ms) {
    const CudaConv2d& conv = choices[candidate];
    copy_to_device(constants.data(), packed[conv.variant].data(), packed[conv.variant].size(), stream.get());
    return time_launches(stream,
                         [&] {
                           if (behind) problem.before();
                           kernels::cuda_conv2d(conv, problem.shape, problem.params, tensors, stream.get());
                         },
                         {.runs = kRuns, .slow_ms = slow_ms});
  });
  return {best, room};
}

}  // namespace

std::string conv_work(const ConvProblem& problem) {
  const kernels::Conv2dShape& s = problem.shape;
  const kernels::Conv2dParams& p = problem.params;
  const int x[] = {problem.tensors.images, s.in_c, s.in_h, s.in_w, s.in_stride, p.x.zero_point != 0, p.x.is_signed};
  const int y[] = {s.out_c, s.out_h, s.out_w, s.out_stride, p.y.is_signed, p.y.float_output};
  const int residual[] = {p.has_residual, s.residual_stride, p.residual.is_signed, problem.tensors.lookup != nullptr};
  const int window[] = {s.kernel_h, s.kernel_w,   s.stride_h,   s.stride_w, s.pad_h,
                        s.pad_w,    s.dilation_h, s.dilation_w, s.groups};
  return fmt::format("{} > {} + {}, {}, {}", fmt::join(x, " "), fmt::join(y, " "), fmt::join(residual, " "),
                     fmt::join(window, " "), problem.before != nullptr ? "behind a kernel" : "alone");
}

CudaConv2d choose_conv2d(const ConvProblem& problem, const std::string& allowed, const Stream& stream) {
  const std::vector<CudaConv2d> choices = allowed_choices(problem, allowed);
  std::vector<std::string> names;
  for (const CudaConv2d& conv : choices) names.push_back(conv.name);
  return choices[remembered_choice(conv_work(problem), names,
                                   [&] { return fastest(problem, choices, names, stream); })];
}

}  // namespace octet
