// SPDX-License-Identifier: Apache-2.0
#include "src/engine/time_convolutions.h"

#include <algorithm>
#include <memory>

#include "kernels/conv/conv2d.h"
#include "src/base/error.h"
#include "src/base/numbers.h"
#include "src/base/progress.h"
#include "src/base/random.h"
#include "src/cuda/device.h"
#include "src/cuda/memory.h"
#include "src/engine/cuda/choice.h"
#include "src/engine/cuda/step.h"
#include "src/engine/engine.h"
#include "src/engine/memory_plan.h"
#include "src/engine/peers/peer.h"

namespace octet {
namespace {

/// Bytes that consecutive launches walk through: several times the L2 cache of today's GPUs (60 MB on an H200).
constexpr size_t kFootprint = size_t{256} << 20;
constexpr size_t kMaxSets = 256;
constexpr size_t kMinLaunches = 10;
constexpr size_t kHalfLanes = 8;  ///< channels of a half tensor are padded to 16 bytes

enum class Element { code, half };

/// Returns random codes, or random halves with magnitudes from 1/8 to 1.
std::vector<uint16_t> noise(size_t words, Element element) {
  Random random({1});
  std::vector<uint16_t> values(words);
  for (uint16_t& value : values) {
    value = static_cast<uint16_t>(random.next() >> 48);
    if (element == Element::half) value = static_cast<uint16_t>((value & 0x8000) | 0x3000 | (value & 0x0bff));
  }
  return values;
}

/// Returns device memory full of noise.
DeviceBuffer noisy_buffer(size_t bytes, Element element, const Stream& stream) {
  constexpr size_t kBlock = size_t{4} << 20;
  DeviceBuffer buffer(bytes, "tensors to measure on");
  const std::vector<uint16_t> block = noise(kBlock / sizeof(uint16_t), element);
  for (size_t first = 0; first < bytes; first += kBlock) {
    copy_to_device(buffer.data() + first, block.data(), std::min(kBlock, bytes - first), stream.get());
  }
  stream.wait("uploading random tensors");
  return buffer;
}

struct TensorBytes {
  size_t x = 0, residual = 0, y = 0;
};

/// Several sets of an input, a residual and an output: consecutive launches use different sets.
class RotatingTensors {
 public:
  RotatingTensors(const TensorBytes& bytes, Element element, const Stream& stream)
      : residual_at_(aligned(bytes.x + kernels::kCudaReadSlack, kDeviceAlignment)),
        y_at_(residual_at_ + aligned(bytes.residual + kernels::kCudaReadSlack, kDeviceAlignment)),
        set_bytes_(y_at_ + aligned(bytes.y + kernels::kCudaReadSlack, kDeviceAlignment)),
        sets_(std::clamp<size_t>(kFootprint / set_bytes_, 2, kMaxSets)),
        memory_(noisy_buffer(sets_ * set_bytes_, element, stream)) {}
  size_t sets() const { return sets_; }
  const uint8_t* x(size_t set) const { return at(set); }
  const uint8_t* residual(size_t set) const { return at(set) + residual_at_; }
  uint8_t* y(size_t set) const { return at(set) + y_at_; }

 private:
  uint8_t* at(size_t set) const { return memory_.data() + set % sets_ * set_bytes_; }
  size_t residual_at_, y_at_, set_bytes_, sets_;
  DeviceBuffer memory_;
};

/// Returns the median milliseconds of one launch on rotating sets.
double time_rotating(const Stream& stream, const RotatingTensors& tensors, int replays,
                     const std::function<void(size_t set)>& launch) {
  const size_t launches = std::max(tensors.sets(), kMinLaunches);
  const CapturedGraph graph(stream, [&] {
    for (size_t i = 0; i < launches; ++i) launch(i);
  });
  return median(time_replays(graph, stream, replays)) / static_cast<double>(launches);
}

/// Returns a node's convolution on halves.
FusedConvSpec half_spec(const Lowering& lowering, int node, int batch) {
  FusedConvSpec spec = fused_conv_spec(lowering, node, batch);
  const kernels::Conv2dShape s = lowering.conv2d_shape(node);
  const auto lanes = [&](int channels) {
    return s.groups > 1 ? channels : static_cast<int>((channels + kHalfLanes - 1) / kHalfLanes * kHalfLanes);
  };
  spec.type = FusedConvSpec::Type::fp16;
  spec.shape.in_c = lanes(s.in_c);
  spec.shape.out_c = lanes(s.out_c);
  return spec;
}

/// Times one convolution of the network on each contestant.
class ConvolutionTimer {
 public:
  ConvolutionTimer(const Lowering& lowering, int node, const TimingOptions& options, const Stream& stream)
      : lowering_(lowering), node_(node), options_(options), stream_(stream) {}

  ConvolutionTimes measure() {
    const kernels::Conv2dShape s = lowering_.conv2d_shape(node_);
    const size_t in = static_cast<size_t>(options_.batch) * s.in_h * s.in_w,
                 out = static_cast<size_t>(options_.batch) * s.out_h * s.out_w;
    const kernels::Conv2dParams p = lowering_.conv2d_params(node_);
    const size_t y_bytes = out * s.out_stride * (p.y.float_output ? sizeof(float) : 1);
    {
      const RotatingTensors codes({in * s.in_stride, p.has_residual ? out * s.residual_stride : 0, y_bytes},
                                  Element::code, stream_);
      time_step(kCudaInt8, *make_cuda_step(lowering_, node_, "auto"), codes);
      if (supported(kCudnnInt8, "cudnn")) time_step(kCudnnInt8, *make_cudnn_conv_step(lowering_, node_, true), codes);
      if (supported(kCutlassInt8, "cutlass")) time_step(kCutlassInt8, *make_cutlass_step(lowering_, node_), codes);
    }
    time_halves(half_spec(lowering_, node_, options_.batch));
    return std::move(times_);
  }

 private:
  /// Whether the engine can run here and runs the node; if not, keeps the reason.
  bool supported(Contestant who, const char* engine) {
    Support support = find_engine(engine).available();
    if (support.ok) support = find_engine(engine).supports(lowering_.graph, node_);
    times_[who].reason = support.reason;
    return support.ok;
  }

  void time_step(Contestant who, CudaStep& step, const RotatingTensors& tensors) {
    std::vector<const uint8_t*> inputs(2);
    DeviceBuffer scratch, zeroed;
    const auto data = [&](size_t set) {
      inputs = {tensors.x(set), tensors.residual(set)};
      return CudaStepData{.images = options_.batch,
                          .inputs = inputs.data(),
                          .output = tensors.y(set),
                          .scratch = scratch.data(),
                          .zeroed = zeroed.data()};
    };
    try {
      step.prepare(data(0), stream_);
    } catch (const Error& error) {
      if (error.code() == ExitCode::interrupted) throw;
      times_[who].reason = error.what();
      return;
    }
    scratch = DeviceBuffer(step.scratch_bytes(options_.batch), "work space");
    zeroed = DeviceBuffer(step.zeroed_bytes(options_.batch), "partial sums");
    if (zeroed.bytes() > 0) fill_device(zeroed.data(), 0, zeroed.bytes(), stream_.get());
    times_[who].kernel = step.kernel(options_.batch);
    times_[who].milliseconds =
        time_rotating(stream_, tensors, options_.replays, [&](size_t set) { step.launch(data(set), stream_.get()); });
  }

  void time_halves(const FusedConvSpec& spec) {
    const kernels::Conv2dShape& s = spec.shape;
    const size_t in = sizeof(uint16_t) * spec.images * s.in_h * s.in_w * s.in_c,
                 out = sizeof(uint16_t) * spec.images * s.out_h * s.out_w * s.out_c;
    const size_t weights = sizeof(uint16_t) * s.out_c * s.kernel_h * s.kernel_w * (s.in_c / s.groups);
    const RotatingTensors tensors({in, spec.residual ? out : 0, out}, Element::half, stream_);
    const DeviceBuffer weight = noisy_buffer(weights, Element::half, stream_);
    const std::vector<float> ones(2 * s.out_c + 1, 1.0f);
    const DeviceBuffer floats(ones.size() * sizeof(float), "multipliers and biases");
    copy_to_device(floats.data(), ones.data(), floats.bytes(), stream_.get());
    stream_.wait("uploading multipliers");
    const float* multiplier = reinterpret_cast<const float*>(floats.data());
    DeviceBuffer workspace;
    const auto data = [&](size_t set) {
      return FusedConvTensors{.x = tensors.x(set),
                              .weight = weight.data(),
                              .multiplier = multiplier,
                              .bias = multiplier + s.out_c,
                              .residual = tensors.residual(set),
                              .residual_multiplier = multiplier + 2 * s.out_c,
                              .y = tensors.y(set),
                              .workspace = workspace.data()};
    };
    ConvolutionTime& time = times_[kCudnnFp16];
    std::shared_ptr<const FusedConv> conv;
    try {
      conv = cudnn_conv(spec, data(0), stream_);
    } catch (const Error& error) {
      if (error.code() == ExitCode::interrupted) throw;
      time.reason = error.what();
      return;
    }
    workspace = DeviceBuffer(conv->workspace_bytes(), "cuDNN's work space");
    time.kernel = conv->name();
    time.milliseconds =
        time_rotating(stream_, tensors, options_.replays, [&](size_t set) { conv->launch(data(set), stream_.get()); });
  }

  const Lowering& lowering_;
  int node_;
  const TimingOptions& options_;
  const Stream& stream_;
  ConvolutionTimes times_;
};

}  // namespace

TimedConvolutions time_convolutions(const Int8Graph& graph, const std::vector<int>& nodes,
                                    const TimingOptions& options) {
  resolve_engines({"cuda", "cudnn"});
  const Lowering lowering{graph, kernels::cuda_channel_stride};
  std::vector<FusedConvSpec> specs;
  for (const int node : nodes) {
    if (find_engine("cudnn").supports(graph, node).ok) specs.push_back(fused_conv_spec(lowering, node, options.batch));
    specs.push_back(half_spec(lowering, node, options.batch));
  }
  build_plans(specs);
  TimedConvolutions timed{gpu_status().name + ", " + cudnn_version(), {kCudaInt8, kCudnnInt8, kCudnnFp16}, {}};
  if (find_engine("cutlass").available().ok) timed.contestants.push_back(kCutlassInt8);
  const Stream stream;
  for (const int node : nodes) {
    throw_if_interrupted();
    timed.times.push_back(ConvolutionTimer(lowering, node, options, stream).measure());
  }
  return timed;
}

}  // namespace octet
