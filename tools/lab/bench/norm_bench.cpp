// SPDX-License-Identifier: Apache-2.0
// norm_bench [batch] [network]: times live BatchNorm and the quantizer behind it on the layers of ResNet-50 and
// MobileNetV2 at 224x224, float16: LibTorch's BatchNorm (cuDNN) and then octet's quantizer, beside both in the same
// passes (kernels/training/norm_quantize.h). Not a product: a tool for those who work on kernels.
//
// One line a shape, printed as it goes: microseconds forward and backward of either, and the GB/s that the bytes of the
// joined passes make of them, whatever the others move. Each is the median of 15 replays of a recorded graph, over as
// many layers one after another as do not fit in the cache. The last line adds up the layers of the network.
#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/numbers.h"
#include "src/cuda/device.h"
#include "src/cuda/stream.h"
#include "src/train/model/device.h"
#include "src/train/model/step_graph.h"
#include "src/train/qat/fake_quantize.h"
#include "src/train/qat/joined_operators.h"
#include "trainers/gpu.h"

namespace octet {
namespace {

constexpr int kReplays = 15;
constexpr double kBytesOfRotation = 400e6;  // several times the cache
constexpr size_t kMostLayers = 16;

struct LayerShape {
  int channels, size;
  kernels::Clamp activation;
  bool residual;  ///< added to it
  bool branches;  ///< its output is a block's, read by a convolution and as a residual
  int count;      ///< in the network
};

const std::vector<LayerShape> kResNet50 = {
    {64, 112, kernels::kRelu, false, false, 1}, {64, 56, kernels::kRelu, false, false, 6},
    {256, 56, kernels::kRelu, true, true, 3},   {256, 56, kernels::kNoClamp, false, false, 1},
    {128, 56, kernels::kRelu, false, false, 1}, {128, 28, kernels::kRelu, false, false, 7},
    {512, 28, kernels::kRelu, true, true, 4},   {512, 28, kernels::kNoClamp, false, false, 1},
    {256, 28, kernels::kRelu, false, false, 1}, {256, 14, kernels::kRelu, false, false, 11},
    {1024, 14, kernels::kRelu, true, true, 6},  {1024, 14, kernels::kNoClamp, false, false, 1},
    {512, 14, kernels::kRelu, false, false, 1}, {512, 7, kernels::kRelu, false, false, 5},
    {2048, 7, kernels::kRelu, true, true, 3},   {2048, 7, kernels::kNoClamp, false, false, 1}};

const std::vector<LayerShape> kMobileNetV2 = {
    {32, 112, kernels::kRelu6, false, false, 2},  {16, 112, kernels::kNoClamp, false, false, 1},
    {96, 112, kernels::kRelu6, false, false, 1},  {96, 56, kernels::kRelu6, false, false, 1},
    {24, 56, kernels::kNoClamp, false, true, 1},  {24, 56, kernels::kNoClamp, true, false, 1},
    {144, 56, kernels::kRelu6, false, false, 3},  {144, 28, kernels::kRelu6, false, false, 1},
    {32, 28, kernels::kNoClamp, false, true, 1},  {32, 28, kernels::kNoClamp, true, true, 2},
    {192, 28, kernels::kRelu6, false, false, 5},  {192, 14, kernels::kRelu6, false, false, 1},
    {64, 14, kernels::kNoClamp, false, true, 1},  {64, 14, kernels::kNoClamp, true, true, 3},
    {384, 14, kernels::kRelu6, false, false, 8},  {96, 14, kernels::kNoClamp, false, true, 1},
    {96, 14, kernels::kNoClamp, true, true, 2},   {576, 14, kernels::kRelu6, false, false, 5},
    {576, 7, kernels::kRelu6, false, false, 1},   {160, 7, kernels::kNoClamp, false, true, 1},
    {160, 7, kernels::kNoClamp, true, true, 2},   {960, 7, kernels::kRelu6, false, false, 6},
    {320, 7, kernels::kNoClamp, false, false, 1}, {1280, 7, kernels::kRelu6, false, false, 1}};

/// A layer's tensors, channels-last.
struct NormLayer {
  at::Tensor x, residual, dy, also;
  BatchNormTensors norm;

  NormLayer(const LayerShape& shape, int batch) {
    const at::TensorOptions floats = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
    const auto draw = [&] {
      return at::randn({batch, shape.channels, shape.size, shape.size}, floats.dtype(at::kHalf))
          .contiguous(at::MemoryFormat::ChannelsLast);
    };
    x = draw().set_requires_grad(true);
    dy = draw();
    if (shape.residual) residual = draw().set_requires_grad(true);
    if (shape.branches) also = draw();
    norm = {(at::rand({shape.channels}, floats) + 0.5).set_requires_grad(true),
            at::zeros({shape.channels}, floats).set_requires_grad(true), at::zeros({shape.channels}, floats),
            at::ones({shape.channels}, floats)};
  }
};

/// How a layer runs: both in the same passes, or one after the other.
struct Way {
  const LayerShape& shape;
  kernels::EdgeQuantizer* edge;
  bool joined;

  Twins forward(const NormLayer& layer) const {
    if (joined)
      return cuda_norm_quantize({.value = layer.x, .residual = layer.residual}, layer.norm,
                                {.edge = edge, .activation = shape.activation});
    const at::Tensor normal = at::batch_norm(layer.x, layer.norm.weight, layer.norm.bias, layer.norm.running_mean,
                                             layer.norm.running_var, true, kBatchNormMomentum, kBatchNormEpsilon,
                                             /*cudnn_enabled=*/true);
    const at::Tensor y = cuda_fake_quantize(
        normal, {}, layer.residual, {.device = &edge->qparams, .activation = shape.activation, .in_place = true});
    return {y, y};
  }
  void backward(const NormLayer& layer, const Twins& twins) const {
    std::vector<at::Tensor> inputs{layer.x, layer.norm.weight, layer.norm.bias}, outputs{twins.first}, of{layer.dy};
    if (layer.residual.defined()) inputs.push_back(layer.residual);
    if (layer.also.defined()) {
      outputs.push_back(joined ? twins.second : twins.first.alias());  // whose gradients autograd adds up
      of.push_back(layer.also);
    }
    torch::autograd::grad(outputs, inputs, of);
  }
};

/// Returns the microseconds of `work` as a graph.
double microseconds(const std::function<void()>& work) {
  StepGraph graph(true);
  for (int i = 0; i <= StepGraph::kWarmUps; ++i) graph.run(0, work);
  const CudaStream stream = current_stream(at::Device(at::kCUDA, 0));
  std::vector<double> times;
  for (int i = 0; i < kReplays; ++i) {
    Event start, stop;
    start.record(stream);
    graph.run(0, work);
    stop.record(stream);
    stop.wait();
    times.push_back(1e3 * stop.milliseconds_since(start));
  }
  return median(times);
}

/// Microseconds of one layer.
struct PassTimes {
  double forward = 0, backward = 0;
};

PassTimes time_layers(const std::vector<NormLayer>& layers, const Way& way) {
  const auto count = static_cast<double>(layers.size());
  PassTimes times;
  times.forward = microseconds([&] {
                    for (const NormLayer& layer : layers) way.forward(layer);
                  }) /
                  count;
  const double both = microseconds([&] {
    for (const NormLayer& layer : layers) way.backward(layer, way.forward(layer));
  });
  times.backward = both / count - times.forward;
  return times;
}

/// Bytes of a value that the joined passes read and write, in float16 with a bit of mask.
double bytes_forward(const LayerShape& s) { return 2 + 2 + 2 + (s.residual ? 2 : 0) + 0.125; }
double bytes_backward(const LayerShape& s) {
  const double gradient = 2 + 0.125 + (s.branches ? 2 : 0);
  return s.residual ? (gradient + 2 + 2) + (2 + 2 + 2) : (gradient + 2) + (gradient + 2 + 2);
}

void run_network(const char* name, const std::vector<LayerShape>& shapes, int batch, kernels::EdgeQuantizer* edge) {
  fmt::print("{}, batch {}: microseconds (GB/s) a layer, apart and joined\n", name, batch);
  PassTimes apart_sum, joined_sum;
  double bytes = 0;
  for (const LayerShape& shape : shapes) {
    const double values = static_cast<double>(batch) * shape.channels * shape.size * shape.size;
    const size_t sets = std::clamp<size_t>(static_cast<size_t>(kBytesOfRotation / (4 * values)), 1, kMostLayers);
    std::vector<NormLayer> layers;
    for (size_t i = 0; i < sets; ++i) layers.emplace_back(shape, batch);
    const PassTimes apart = time_layers(layers, {shape, edge, false}),
                    joined = time_layers(layers, {shape, edge, true});
    const auto column = [&](double time, double of_value) {
      return fmt::format("{:7.1f} ({:4.0f})", time, values * of_value / time * 1e-3);
    };
    const double forward = bytes_forward(shape), backward = bytes_backward(shape);
    fmt::print("{:4} x {:3}{}{} x{:<2} {:6.1f} MB  forward {} {}  backward {} {}\n", shape.channels, shape.size,
               shape.residual ? " + residual" : "           ", shape.branches ? " 2 readers" : "          ",
               shape.count, 2e-6 * values, column(apart.forward, forward), column(joined.forward, forward),
               column(apart.backward, backward), column(joined.backward, backward));
    std::fflush(stdout);
    apart_sum.forward += 1e-3 * shape.count * apart.forward;
    apart_sum.backward += 1e-3 * shape.count * apart.backward;
    joined_sum.forward += 1e-3 * shape.count * joined.forward;
    joined_sum.backward += 1e-3 * shape.count * joined.backward;
    bytes += shape.count * values * (forward + backward);
  }
  fmt::print("{}: forward {:.2f} -> {:.2f} ms, backward {:.2f} -> {:.2f} ms; {:.1f} GB\n", name, apart_sum.forward,
             joined_sum.forward, apart_sum.backward, joined_sum.backward, bytes * 1e-9);
  std::fflush(stdout);
}

void run_all(int batch, const std::string& network) {
  if (batch < 2) throw usage_error("norm_bench [batch] [network]: a batch of 2 or more");
  if (!gpu_status().usable) throw usage_error("norm_bench needs a GPU: " + gpu_status().reason);
  const at::Device device(at::kCUDA, 0);
  const OwnStream stream(device);
  fmt::print("{}\n", gpu_status().name);
  kernels::EdgeQuantizer edge{.qparams = {0.03f, 20, 0, 255}, .affine = 1};
  const at::Tensor on_device = at::empty({sizeof edge}, at::TensorOptions(device).dtype(at::kByte));
  on_device.copy_(at::from_blob(&edge, {sizeof edge}, at::kByte));
  auto* const quantizer = static_cast<kernels::EdgeQuantizer*>(on_device.data_ptr());
  if (network != "mobilenet_v2") run_network("resnet50", kResNet50, batch, quantizer);
  if (network != "resnet50") run_network("mobilenet_v2", kMobileNetV2, batch, quantizer);
}

}  // namespace
}  // namespace octet

int main(int argc, char** argv) {
  try {
    octet::run_all(argc > 1 ? std::atoi(argv[1]) : 256, argc > 2 ? argv[2] : "");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "norm_bench: %s\n", error.what());
    return 1;
  }
}
