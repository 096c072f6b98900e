// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/stage_plan.h"

#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <c10/core/Allocator.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <set>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/quant/plan.h"
#include "src/train/model/device.h"
#include "src/train/model/model.h"
#include "src/train/model/step_graph.h"
#include "trainers/gpu.h"
#include "trainers/parallel/stages.h"

namespace octet {
namespace {

constexpr long kCalibrationImages = 8;
constexpr double kAsFast = 1.02;  // repeated measurements differ by more
constexpr double kNever = std::numeric_limits<double>::infinity();

/// Counts the bytes that this thread's operators take from LibTorch's allocators, less those that they give back.
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

  /// Returns the milliseconds of each pass, forward and backward, sorted.
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
        // A part that only moves pixels of the image has no gradients.
        if (y.requires_grad()) torch::autograd::backward({y}, {gradient});
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

/// Returns the network of QAT, calibrated on a few of the images: enough for its time.
QuantizedModel calibrated(const Run& run, const Weights& weights, const at::Tensor& images) {
  QuantizedModel model = make_quantized(run, weights);
  const c10::NoGradGuard no_grad;
  model.forward(images.narrow(0, 0, std::min<int64_t>(images.size(0), kCalibrationImages)),
                {.batch_norm_training = true, .observe = true, .quantize = false});
  model.calibrate(CalibrationMethod::minmax, 100);
  return model;
}

/// Returns the parts between the places where both the fused network and `graph` can be cut.
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

/// Returns the cost of parts begin to end - 1 as one stage with `under_way` micro-batches.
PartCost sum_of(const std::vector<PartCost>& parts, size_t begin, size_t end, int under_way) {
  PartCost sum;
  for (size_t i = begin; i < end; ++i) {
    sum.milliseconds += parts[i].milliseconds;
    sum.fastest += parts[i].fastest;
    sum.slowest += parts[i].slowest;
    sum.kept_bytes += parts[i].kept_bytes * under_way;
    sum.weight_bytes += parts[i].weight_bytes;
  }
  sum.last = parts[end - 1].last;
  sum.border_bytes = parts[end - 1].border_bytes;
  return sum;
}

/// Returns the ends of the stages for which the largest cost is smallest. cost(stage, begin, end): of the parts begin
/// to end - 1.
struct Cuts {
  double largest = kNever;
  std::vector<size_t> ends;
};
Cuts best_cuts(size_t parts, int stages, const std::function<double(int stage, size_t begin, size_t end)>& cost) {
  std::vector<Cuts> best(parts + 1);  // cuts of the stages so far, by their end
  best[0].largest = 0;
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Cuts> next(parts + 1);
    for (size_t end = 1; end <= parts; ++end) {
      for (size_t begin = 0; begin < end; ++begin) {
        const double largest = std::max(best[begin].largest, cost(stage, begin, end));
        if (best[begin].largest == kNever || largest >= next[end].largest) continue;
        next[end] = {largest, best[begin].ends};
        next[end].ends.push_back(end);
      }
    }
    best = std::move(next);
  }
  return best[parts];
}

}  // namespace

std::vector<PartCost> measure_parts(const Run& run, const OptimizerRecipe& recipe, int micro_batches, bool qat,
                                    bool recorded) {
  if (const size_t outputs = run.graph.outputs.size(); outputs != 1)
    throw usage_error(fmt::format("a network of {} outputs: parallel.stages cuts networks of one", outputs));
  const OwnStream stream(run.device);
  const Graph fused = fuse(run.graph);
  const Weights weights = to_device(initial_weights(run.graph, run.recipe.seed), run.device);
  const Shape& shape = fused.nodes.front().shape;
  const auto format = recipe.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  const at::Tensor images = at::randn({std::max(1, recipe.batch_size / micro_batches), shape.c, shape.h, shape.w},
                                      at::TensorOptions(run.device))
                                .contiguous(format);
  for (const auto& [name, weight] : weights)
    if (weight.dim() == 4) at::Tensor(weight).set_data(weight.detach().contiguous(format));
  std::optional<QuantizedModel> model;
  WalkHooks hooks;
  if (qat) {
    model.emplace(calibrated(run, weights, images));
    hooks = model->quantizing_hooks({.training = true, .batch_norm_training = true});
    if (run.device.is_cuda()) hooks.parameters = nullptr;  // on a GPU weights are quantized once a step
  }
  const Graph& graph = qat ? model->prepared().graph : fused;
  const Bench bench{graph, weights, hooks, run.device, recipe.precision, recorded};
  const std::vector<GraphPart> parts = all_parts(fused, graph);
  Progress progress("measure", static_cast<long>(parts.size()), "parts");
  std::vector<PartCost> costs;
  at::Tensor x = images;
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

StagePlan plan_stages(const std::vector<PartCost>& parts, int stages, int micro_batches) {
  if (static_cast<size_t>(stages) > parts.size())
    throw usage_error(
        fmt::format("{} stages: the network has {} parts that a cut can tell apart", stages, parts.size()));
  const auto under_way = [&](int stage) { return StagedPass::max_under_way(stage, stages, micro_batches); };
  const auto stage_of = [&](int stage, size_t begin, size_t end) {
    return sum_of(parts, begin, end, under_way(stage));
  };
  // The batch takes the time of all micro-batches in this stage, plus both passes of one micro-batch through the stages
  // before it: the stage waits for the forward pass of the first, and they finish with the backward pass of the last.
  const auto milliseconds = [&](int stage, size_t begin, size_t end) {
    return micro_batches * stage_of(stage, begin, end).milliseconds +
           (begin == 0 ? 0 : sum_of(parts, 0, begin, 1).milliseconds);
  };
  const Cuts fastest = best_cuts(parts.size(), stages, milliseconds);
  const Cuts chosen = best_cuts(parts.size(), stages, [&](int stage, size_t begin, size_t end) {
    if (milliseconds(stage, begin, end) > kAsFast * fastest.largest) return kNever;
    const PartCost cost = stage_of(stage, begin, end);
    return cost.kept_bytes + 4 * cost.weight_bytes;
  });
  StagePlan plan;
  double slowest = 0, all = 0;
  for (size_t i = 0, begin = 0; i < chosen.ends.size(); begin = chosen.ends[i++]) {
    plan.stages.push_back(stage_of(static_cast<int>(i), begin, chosen.ends[i]));
    if (i + 1 < chosen.ends.size()) plan.layers.push_back(plan.stages.back().last);
    slowest = std::max(slowest, milliseconds(static_cast<int>(i), begin, chosen.ends[i]));
    all += plan.stages.back().milliseconds;
  }
  plan.speed_up = micro_batches * all / slowest;
  return plan;
}

}  // namespace octet
