// Time and memory of the parts of a network, each alone.
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <c10/core/Allocator.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <set>

#include "src/common/interrupt.h"
#include "src/common/progress.h"
#include "src/graph/op_traits.h"
#include "src/model/autocast.h"
#include "src/model/device.h"
#include "src/model/step_graph.h"
#include "src/model/walk_part.h"
#include "src/quant/fuse.h"
#include "trainers/gpu.h"
#include "trainers/loop/stages.h"
#include "trainers/run/stage_plan.h"

namespace octet {
namespace {

constexpr long kCalibrationImages = 8;

/// Counts what this thread's operators take from LibTorch's allocators, and give back.
class MemoryCount : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override { bytes_ += size; }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

struct Bench {
  const Graph& graph;
  const Weights& weights;
  const WalkHooks& hooks;
  at::Device device;
  Precision precision;
  bool recorded;

  at::Tensor forward(const GraphPart& part, const at::Tensor& x) const {
    const Autocast autocast(device.type(), precision);
    const WalkMode mode{
        .training = true, .batch_norm_training = true, .shares = batch_norm_of_micro_batches(device)};  // as in a step
    return walk_part(graph, weights, part, x, mode, hooks);
  }
  void forget_gradients() const {
    for (const auto& [name, weight] : weights)
      if (weight.requires_grad()) at::Tensor(weight).mutable_grad() = at::Tensor();
  }
  void wait() const {
    if (device.is_cuda()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  }

  double kept_bytes(const GraphPart& part, const at::Tensor& x) const {
    const auto count = std::make_shared<MemoryCount>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, count);
    const at::Tensor y = forward(part, x);
    return static_cast<double>(count->bytes());
  }

  /// In milliseconds, the fastest first.
  std::vector<double> times(const GraphPart& part, const at::Tensor& x, const at::Tensor& gradient) const {
    StepGraph graph_of_part(recorded && device.is_cuda());
    std::vector<double> milliseconds;
    for (int i = 0; i < StepGraph::kWarmUps + 1 + kTimesMeasured; ++i) {
      throw_if_interrupted();
      wait();
      const auto start = std::chrono::steady_clock::now();
      graph_of_part.run(0, [&] {
        forget_gradients();
        at::Tensor(x).mutable_grad() = at::Tensor();
        const at::Tensor y = forward(part, x);
        if (y.requires_grad()) torch::autograd::backward({y}, {gradient});  // else it only moves the picture's pixels
      });
      wait();
      const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
      if (i > StepGraph::kWarmUps) milliseconds.push_back(taken.count());
    }
    forget_gradients();
    std::sort(milliseconds.begin(), milliseconds.end());
    return milliseconds;
  }
};

/// Calibrated on the pictures, as roughly as times need.
QuantizedModel calibrated(const Run& run, const Weights& weights, const at::Tensor& pictures) {
  QuantizedModel model = make_quantized(run, weights);
  const c10::NoGradGuard no_grad;
  model.forward(pictures.narrow(0, 0, std::min<int64_t>(pictures.size(0), kCalibrationImages)),
                {.batch_norm_training = true, .observe = true, .quantize = false});
  model.calibrate(CalibrationMethod::minmax, 100);
  return model;
}

/// Parts between the places where both the fused network and `graph` can be cut.
std::vector<GraphPart> all_parts(const Graph& fused, const Graph& graph) {
  std::set<std::string> names;
  for (const int cut : cut_points(fused)) names.insert(fused.nodes[cut].name);
  std::vector<GraphPart> parts;
  int first = 0;
  for (const int cut : cut_points(graph)) {
    if (names.count(graph.nodes[cut].name) == 0) continue;
    parts.push_back({first, cut});
    first = cut;
  }
  parts.push_back({first, graph.outputs.front()});
  return parts;
}

double weight_bytes(const Graph& graph, const GraphPart& part) {
  std::set<std::string> layers;
  for (int n = part.first + 1; n <= part.last; ++n) {
    layers.insert(graph.nodes[n].name);
    layers.insert(graph.nodes[n].batch_norm);
  }
  double bytes = 0;
  for (const ParameterSpec& parameter : parameters(graph)) {
    if (layers.count(parameter.name.substr(0, parameter.name.rfind('.'))) == 0) continue;
    double size = sizeof(float);
    for (const long extent : parameter.shape) size *= static_cast<double>(extent);
    bytes += size;
  }
  return bytes;
}

}  // namespace

std::vector<PartCost> measure_parts(const Run& run, const OptimizerRecipe& recipe, int micro_batches, bool qat,
                                    bool recorded) {
  const OwnStream stream(run.device);
  const Graph fused = fuse(run.graph);
  const Weights weights = to_device(initial_weights(run.graph, run.recipe.seed), run.device);
  const Shape& shape = fused.nodes.front().shape;
  const auto format = recipe.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  const at::Tensor pictures = at::randn({std::max(1, recipe.batch_size / micro_batches), shape.c, shape.h, shape.w},
                                        at::TensorOptions(run.device))
                                  .contiguous(format);
  for (const auto& [name, weight] : weights)
    if (weight.dim() == 4) at::Tensor(weight).set_data(weight.detach().contiguous(format));
  std::optional<QuantizedModel> model;
  WalkHooks hooks;
  if (qat) {
    model.emplace(calibrated(run, weights, pictures));
    hooks = model->quantizing_hooks({.training = true, .batch_norm_training = true});
    if (run.device.is_cuda()) hooks.parameters = nullptr;  // there weights are quantized once a step
  }
  const Graph& graph = qat ? model->prepared().graph : fused;
  const Bench bench{graph,   weights, hooks, run.device, value_named(kPrecisions, recipe.precision, "precision"),
                    recorded};
  const std::vector<GraphPart> parts = all_parts(fused, graph);
  Progress progress("measure", static_cast<long>(parts.size()), "parts");
  std::vector<PartCost> costs;
  at::Tensor x = pictures;
  for (const GraphPart& part : parts) {
    const at::Tensor y = bench.forward(part, x).detach();
    PartCost cost{.last = graph.nodes[part.last].name};
    const std::vector<double> times = bench.times(part, x, at::randn_like(y));
    cost.fastest = times.front();
    cost.milliseconds = times[times.size() / 2];
    cost.slowest = times.back();
    cost.kept_bytes = bench.kept_bytes(part, x);
    cost.border_bytes = static_cast<double>(y.nbytes());
    cost.weight_bytes = weight_bytes(graph, part);
    costs.push_back(cost);
    x = y.clone().requires_grad_(true);
    progress.update(static_cast<long>(costs.size()), cost.last);
  }
  return costs;
}

}  // namespace octet
