// SPDX-License-Identifier: Apache-2.0
#include "src/engine/cuda/step.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "src/base/error.h"
#include "src/cuda/device.h"
#include "src/engine/cuda/choice.h"

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
  // The output may overwrite the input of `before`, which would then no longer read what it reads in a run: so it goes
  // into memory of its own. Without room for that, a convolution is timed after itself, which is not kept for later
  // processes.
  DeviceBuffer own_output;
  bool in_sequence = problem.before != nullptr, room = true;
  if (in_sequence) {
    try {
      own_output = DeviceBuffer(output_bytes(problem), "a convolution's output apart");
      tensors.y = own_output.data();
    } catch (const OutOfGpuMemory&) {
      in_sequence = room = false;
    }
  }

  const size_t best = fastest_candidate(names, kSearch, [&](size_t candidate, double slow_ms) {
    const CudaConv2d& conv = choices[candidate];
    copy_to_device(constants.data(), packed[conv.variant].data(), packed[conv.variant].size(), stream.get());
    return time_launches(stream,
                         [&] {
                           if (in_sequence) problem.before();
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

namespace {

/// A convolution with what has been chosen and uploaded for it.
struct Convolution {
  kernels::Conv2dShape shape;
  kernels::Conv2dParams params;
  kernels::Conv2dWeights weights;
  std::string kernels;
  std::map<int, kernels::CudaConv2d> chosen;  // by number of images
  std::map<int, DeviceBuffer> packed;         // by variant
};

/// The step of a conv2d or linear, perhaps merged with the lookup that reads it: both steps share a Convolution.
class ConvStep final : public CudaStep {
 public:
  ConvStep(const Lowering& lowering, int node, std::string kernels)
      : conv_(std::make_shared<Convolution>(lowering.conv2d_shape(node), lowering.conv2d_params(node),
                                            lowering.conv2d_weights(node), std::move(kernels))) {}

  std::string kernel(int images) const override { return conv_->chosen.at(images).name + (looks_up_ ? "_lookup" : ""); }

  void prepare(const CudaStepData& data, const Stream& stream) override {
    if (looks_up_ && table_.bytes() == 0) table_ = to_device(codes_, "a lookup's table", stream.get());
    const auto conv = choose_conv2d({conv_->shape, conv_->params, conv_->weights, tensors(data), data.before},
                                    conv_->kernels, stream);
    conv_->chosen[data.images] = conv;
    if (conv_->packed.contains(conv.variant)) return;
    conv_->packed[conv.variant] = to_device(
        kernels::cuda_conv2d_pack(conv, conv_->shape, conv_->params, conv_->weights), "weights", stream.get());
  }

  size_t zeroed_bytes(int images) const override {
    return kernels::cuda_conv2d_workspace(conv_->chosen.at(images), conv_->shape, images);
  }

  size_t constant_bytes() const override {
    if (looks_up_) return table_.bytes();  // the convolution's own step counts the rest
    size_t bytes = 0;
    for (const auto& [variant, buffer] : conv_->packed) bytes += buffer.bytes();
    return bytes;
  }

  void launch(const CudaStepData& data, CudaStream stream) const override {
    const kernels::CudaConv2d& conv = conv_->chosen.at(data.images);
    kernels::CudaConv2dData launched = tensors(data);
    launched.packed = conv_->packed.at(conv.variant).data();
    launched.workspace = data.zeroed;
    launched.beside = data.beside;
    kernels::cuda_conv2d(conv, conv_->shape, conv_->params, launched, stream);
  }

  bool can_run_beside(int images) const override {
    return kernels::cuda_conv2d_runs_beside(conv_->chosen.at(images)) && zeroed_bytes(images) == 0;
  }

  std::unique_ptr<CudaStep> with_lookup(const kernels::LookupTable& table) const override {
    return std::make_unique<ConvStep>(conv_, table);
  }
  ConvStep(std::shared_ptr<Convolution> conv, const kernels::LookupTable& table)
      : conv_(std::move(conv)), looks_up_(true), codes_(std::begin(table.byte), std::end(table.byte)) {}

 private:
  kernels::CudaConv2dData tensors(const CudaStepData& data) const {
    return {.images = data.images,
            .x = data.inputs[0],
            .residual = conv_->params.has_residual ? data.inputs[1] : nullptr,
            .y = data.output,
            .lookup = table_.data()};
  }

  std::shared_ptr<Convolution> conv_;
  bool looks_up_ = false;
  std::vector<uint8_t> codes_;  // of the lookup's table
  DeviceBuffer table_;
};

}  // namespace

std::unique_ptr<CudaStep> make_cuda_conv_step(const Lowering& lowering, int node, const std::string& kernels) {
  return std::make_unique<ConvStep>(lowering, node, kernels);
}

}  // namespace octet
