// SPDX-License-Identifier: Apache-2.0
#include "src/engine/peers/peer.h"

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "kernels/conv/conv2d.h"
#include "src/base/error.h"
#include "src/engine/cuda/choice.h"
#include "src/engine/cuda/cuda_program.h"
#include "src/engine/memory_plan.h"
#include "src/engine/support.h"

namespace octet {
namespace {

constexpr const char* kSigned = "quant.activation: symmetric_s8 in the recipe, --activation symmetric_s8 for bench";
constexpr const char* kMix =
    "engine cuda can run such nodes: evaluate.fallback: cuda in the recipe, --fallback cuda for bench and run; "
    "octet_load takes engine cuda for the whole network";

/// Returns why the libraries cannot read or write the node's codes, or "".
std::string edge_fault(const Int8Node& node, const char* what, const std::string& library) {
  if (!node.out.is_signed())
    return fmt::format("{} has uint8 codes; {} multiplies int8 by int8 ({})", what, library, kSigned);
  if (node.out.zero_point != 0)
    return fmt::format("{} has zero point {}; {} pads with 0 ({})", what, node.out.zero_point, library, kSigned);
  return "";
}

/// Returns why `library` cannot take the node's operator, or the codes that it reads and writes, or "".
std::string operator_fault(const Int8Graph& graph, int node, const std::string& library) {
  const Int8Node& n = graph.nodes[node];
  if (n.op != Int8Op::conv2d && n.op != Int8Op::linear)
    return fmt::format("{}: {} runs conv2d and linear here", int8_op_name(n.op), library);
  std::string fault = edge_fault(graph.nodes[n.inputs[0]], "its input", library);
  if (fault.empty() && n.inputs.size() > 1) fault = edge_fault(graph.nodes[n.inputs[1]], "its residual", library);
  if (fault.empty() && !n.float_output) fault = edge_fault(n, "its output", library);
  return fault;
}

/// Chooses what runs a node by timing launches on its tensors.
using ConvChooser = std::function<std::shared_ptr<const FusedConv>(
    const FusedConvSpec& spec, const FusedConvTensors& tensors, const Stream& stream)>;

/// A conv2d or linear by another library.
class PeerConvStep final : public CudaStep {
 public:
  PeerConvStep(const Lowering& lowering, int node, const char* engine, const char* prefix, ConvChooser choose)
      : lowering_(lowering), node_(node), engine_(engine), prefix_(prefix), choose_(std::move(choose)) {}

  std::string engine() const override { return engine_; }
  std::string kernel(int images) const override { return prefix_ + convs_.at(images)->name(); }

  void prepare(const CudaStepData& data, const Stream& stream) override {
    const FusedConvSpec spec = fused_conv_spec(lowering_, node_, data.images);
    if (!constants_)
      constants_.emplace(lowering_.conv2d_shape(node_), lowering_.conv2d_weights(node_),
                         lowering_.conv2d_params(node_).residual_multiplier, spec.shape.in_c,
                         peer_lanes(spec.shape.out_c), stream);
    convs_[data.images] = choose_(spec, tensors(data), stream);
  }

  size_t scratch_bytes(int images) const override { return convs_.at(images)->workspace_bytes(); }
  size_t constant_bytes() const override { return constants_ ? constants_->bytes() : 0; }

  void launch(const CudaStepData& data, CudaStream stream) const override {
    convs_.at(data.images)->launch(tensors(data), stream);
  }

 private:
  FusedConvTensors tensors(const CudaStepData& data) const {
    const bool residual = lowering_.graph.nodes[node_].inputs.size() > 1;
    return {.x = data.inputs[0],
            .weight = constants_->weight(),
            .multiplier = constants_->multiplier(),
            .bias = constants_->bias(),
            .residual = residual ? data.inputs[1] : nullptr,
            .residual_multiplier = constants_->residual_multiplier(),
            .y = data.output,
            .workspace = data.scratch};
  }

  const Lowering& lowering_;
  int node_;
  const char* engine_;
  std::string prefix_;  ///< of kernel()
  ConvChooser choose_;
  std::optional<PeerConstants> constants_;
  std::map<int, std::shared_ptr<const FusedConv>> convs_;  ///< by number of images
};

}  // namespace

Support PeerEngine::supports(const Int8Graph& graph, int node) const {
  // The operator's fault comes first: it is the reason why the library runs none of a network's nodes.
  std::string reason = operator_fault(graph, node, library());
  if (reason.empty()) reason = fault(graph, node);
  return {reason.empty(), std::move(reason)};
}

void PeerEngine::check(const Int8Graph& graph, const CompileOptions& options) const {
  const bool mixes = options.fallback == "cuda";
  if (!mixes && options.fallback != "none")
    throw usage_error(fmt::format("engine {}: unknown fallback '{}'; allowed: none, cuda", name(), options.fallback));
  const std::vector<std::string> allowed = kernel_choices();
  if (std::find(allowed.begin(), allowed.end(), options.kernels) == allowed.end())
    throw usage_error(
        fmt::format("engine {}: unknown kernels '{}'; allowed: {}", name(), options.kernels, fmt::join(allowed, ", ")));
  check_compile(*this, graph, options, {mixes ? &cuda_engine() : nullptr, mixes ? "" : kMix});
}

std::unique_ptr<Program> PeerEngine::compile(const Int8Graph& graph, const CompileOptions& options) const {
  check(graph, options);
  return compile_on_gpu(options.gpu, [&] {
    prepare(graph, options);
    const auto make = [&](const Lowering& lowering, int node) {
      return supports(lowering.graph, node).ok ? make_step(lowering, node, options)
                                               : make_cuda_step(lowering, node, "auto");
    };
    // cuda's kernels for groups of which the library runs no node itself.
    const auto make_group = [this, kernels = cuda_group_steps("auto")](const Lowering& lowering,
                                                                       const NodeGroup& group) {
      const bool has_own = std::any_of(group.nodes.begin(), group.nodes.end(),
                                       [&](int node) { return supports(lowering.graph, node).ok; });
      return has_own ? GroupKernels() : kernels(lowering, group);
    };
    return std::make_unique<CudaProgram>(graph, options, make, make_group);
  });
}

bool fills_lanes(int channels) { return kernels::cuda_channel_stride(channels) % kPeerLanes == 0; }

std::string padding_fault(const Window& window) {
  return window.pad.is_even() ? "" : "another padding behind the image than before it: not built here";
}

PeerConstants::PeerConstants(const kernels::Conv2dShape& shape, const kernels::Conv2dWeights& weights,
                             float residual_multiplier, int lanes_in, int lanes_out, const Stream& stream)
    : lanes_out_(lanes_out) {
  const size_t taps = static_cast<size_t>(shape.kernel_h) * shape.kernel_w;
  weight_bytes_ = aligned(lanes_out_ * taps * lanes_in, kDeviceAlignment);
  std::vector<uint8_t> host(weight_bytes_ + (2 * lanes_out_ + 1) * sizeof(float));
  for (size_t row = 0; row < shape.out_c * taps; ++row) {
    std::memcpy(host.data() + row * lanes_in, weights.weight + row * shape.in_c, shape.in_c);
  }
  uint8_t* floats = host.data() + weight_bytes_;
  std::memcpy(floats, weights.multiplier, shape.out_c * sizeof(float));
  std::memcpy(floats + lanes_out_ * sizeof(float), weights.bias, shape.out_c * sizeof(float));
  std::memcpy(floats + 2 * lanes_out_ * sizeof(float), &residual_multiplier, sizeof(float));
  memory_ = DeviceBuffer(host.size(), "weights");
  copy_to_device(memory_.data(), host.data(), host.size(), stream.get());
  stream.wait("uploading weights");
}

FusedConvSpec fused_conv_spec(const Lowering& lowering, int node, int images) {
  const kernels::Conv2dParams params = lowering.conv2d_params(node);
  FusedConvSpec spec;
  spec.images = images;
  spec.shape = lowering.conv2d_shape(node);
  spec.shape.in_c = spec.shape.in_stride;
  spec.shape.out_c = spec.shape.out_stride;
  spec.residual = params.has_residual;
  spec.clamp_min = params.y.clamp_min, spec.clamp_max = params.y.clamp_max;
  return spec;
}

std::unique_ptr<CudaStep> make_cudnn_conv_step(const Lowering& lowering, int node, bool every_plan) {
  const auto choose = [every_plan](FusedConvSpec spec, const FusedConvTensors& tensors, const Stream& stream) {
    spec.every_plan = every_plan;
    return cudnn_conv(spec, tensors, stream);
  };
  return std::make_unique<PeerConvStep>(lowering, node, "cudnn", "cudnn_conv ", choose);
}

std::unique_ptr<CudaStep> make_cudnn_linear_step(const Lowering& lowering, int node) {
  const auto choose = [shape = lowering.conv2d_shape(node), y = lowering.conv2d_params(node).y](
                          const FusedConvSpec& spec, const FusedConvTensors& tensors, const Stream& stream) {
    return cudnn_linear({spec.images, shape, y}, tensors, stream);
  };
  return std::make_unique<PeerConvStep>(lowering, node, "cudnn", "cublaslt_int8 ", choose);
}

std::unique_ptr<CudaStep> make_cutlass_step(const Lowering& lowering, int node) {
  return std::make_unique<PeerConvStep>(lowering, node, "cutlass", "cutlass_", cutlass_conv);
}

double time_plan(const Stream& stream, const std::string& plan, const std::function<double()>& time) {
  return time_plan(time, [&](const std::string& failure) {
    cudaGetLastError();  // clears the plan's error: the next launch must not be blamed for it
    stream.wait(fmt::format("the GPU has failed after {}: {}", plan, failure).c_str());
  });
}

double time_library_plan(const Stream& stream, const std::string& library, const std::string& plan,
                         size_t workspace_bytes, double slow_ms, const std::function<void(void* workspace)>& launch) {
  return time_plan(stream, plan, [&] {
    const DeviceBuffer scratch(workspace_bytes, library + "'s work space");
    const auto run = [&] { launch(scratch.data()); };
    run();  // outside of the capture: the first launch may load code
    stream.wait(("a plan of " + library).c_str());
    return time_launches(stream, run, {kPlanRuns, slow_ms});
  });
}

}  // namespace octet
