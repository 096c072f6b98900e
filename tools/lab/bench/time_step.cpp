// SPDX-License-Identifier: Apache-2.0
#include "tools/lab/bench/time_step.h"

#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/data/labels.h"
#include "src/net/int8_graph.h"
#include "src/quant/plan.h"
#include "src/train/model/device.h"
#include "src/train/model/step_graph.h"
#include "trainers/gpu.h"
#include "trainers/loop/objective.h"
#include "trainers/loop/step.h"
#include "trainers/run/run.h"

#if OCTET_CUDA
#include "src/cuda/device.h"
#endif

namespace octet {
namespace {

constexpr long kFewestSteps = 10, kGuessedOn = 5;
constexpr long kCalibrationImages = 32;

#if !OCTET_CUDA
struct ProfiledRange {};  // no profiler waits for it
#endif

/// Returns how a detector's outputs become boxes; null for a network of one output.
std::shared_ptr<const BoxDecoder> detector_of(const Graph& graph, const Shape& input) {
  if (graph.outputs.size() == 1) return nullptr;
  const Transform transform{.channels = input.c, .height = input.h, .width = input.w};
  return std::make_shared<BoxDecoder>(box_decoder(graph, find_box_head(graph, BoxHeadKind::yolox), transform));
}

/// Returns labels of images of that shape, int64 [images, kJoinedBoxes, kBoxValues], by a rule, so that a peer can have
/// the same (yolox_peer.py).
at::Tensor timed_boxes(int64_t images, int boxes, const Shape& input, int classes) {
  at::Tensor labels = at::full({images, kJoinedBoxes, kBoxValues}, kNoLabel, at::TensorOptions(at::kLong));
  auto values = labels.accessor<int64_t, 3>();
  const int64_t side = input.h, unit = static_cast<int64_t>(kBoxUnits);
  for (int64_t n = 0; n < images; ++n) {
    for (int64_t k = 0; k < boxes; ++k) {
      const int64_t width = side / 40 + (37 * k + 11 * n) % (side * 2 / 5);
      const int64_t height = side / 40 + (53 * k + 29 * n) % (side * 2 / 5);
      const std::array<int64_t, kBoxValues> box = {(n + k) % classes, (91 * k + 17 * n) % (side - width) * unit,
                                                   (67 * k + 41 * n) % (side - height) * unit, width * unit,
                                                   height * unit};
      for (int64_t i = 0; i < kBoxValues; ++i) values[n][k][i] = box[static_cast<size_t>(i)];
    }
  }
  return labels;
}

/// Returns the milliseconds of each call of `work`, sorted.
std::vector<double> by_the_clock(long steps, const std::function<void()>& work) {
  std::vector<double> milliseconds;
  for (long i = 0; i < steps; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    milliseconds.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  return milliseconds;
}

class Bench {
 public:
  explicit Bench(const StepBench& bench);
  StepTimes run();

 private:
  void step();
  std::vector<double> timed(long steps, const std::function<void()>& work);
  std::vector<double> timed(long steps) {
    return timed(steps, [this] { step(); });
  }
  void time_exchange(StepTimes& times);

  const at::Device device_;
  const OwnStream stream_{device_};
  const OptimizerRecipe recipe_;
  const double seconds_;
  const Graph graph_;
  Weights weights_;
  const bool freeze_batch_norm_, observe_, profile_;
  Ranks* const ranks_;
  std::optional<QuantizedModel> quantized_;
  Phase phase_;
  at::Tensor images_, labels_;
  std::optional<TrainStep> step_;
  StepGraph recorded_;
  long steps_ = 0;
};

Bench::Bench(const StepBench& bench)
    : device_(choose_device(bench.device)),
      recipe_(bench.optimizer),
      seconds_(bench.seconds),
      graph_(bench.parallel.stages.empty() ? build_model(bench.model) : fuse(build_model(bench.model))),
      weights_(to_device(initial_weights(graph_, 1), device_)),
      freeze_batch_norm_(bench.freeze_batch_norm),
      observe_(bench.quant.scales == EdgeScales::observed),
      profile_(bench.profile),
      ranks_(bench.ranks),
      recorded_(bench.cuda.graph) {
  set_switches(device_, bench.cuda);
  const Shape& shape = bench.model.input;
  const at::TensorOptions on_device(device_);
  images_ = at::randn({recipe_.batch_size, shape.c, shape.h, shape.w}, on_device)
                .contiguous(recipe_.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
  const std::shared_ptr<const BoxDecoder> detector = detector_of(graph_, shape);
  labels_ = detector ? timed_boxes(recipe_.batch_size, bench.boxes, shape, detector->classes()).to(device_)
                     : at::randint(graph_.classes(), {recipe_.batch_size}, on_device.dtype(at::kLong));
  phase_ = {.name = bench.qat ? "qat" : "float",
            .recipe = &recipe_,
            .cuda = bench.cuda,
            .parallel = bench.parallel,
            .graph = &graph_,
            .weights = &weights_,
            .ranks = ranks_};
  if (detector)
    phase_.objective = make_objective({.labels = Labels::boxes, .output = {}, .detector = detector}, device_);
  if (bench.qat) {
    Run run;
    run.recipe.quant = bench.quant;
    run.recipe.qat.forward = bench.forward;
    run.recipe.qat.recompute = bench.recompute;
    run.graph = graph_;
    run.ranks = std::shared_ptr<Ranks>(std::shared_ptr<void>(), ranks_);  // without ownership
    quantized_.emplace(make_quantized(run, weights_));
    const c10::NoGradGuard no_grad;
    quantized_->forward(images_.narrow(0, 0, std::min<long>(recipe_.batch_size, kCalibrationImages)),
                        {.batch_norm_training = true, .observe = true, .quantize = false});
    quantized_->calibrate(CalibrationMethod::minmax, 100);
    phase_.quantized = &*quantized_;
  }
  step_.emplace(phase_);
}

void Bench::step() {
  throw_if_interrupted();
  step_->set(recipe_.learning_rate, steps_++);
  const TrainStep::Mode mode{.batch_norm_training = !freeze_batch_norm_, .observe = observe_};
  recorded_.run(mode.number(), [&] { step_->launch(images_, labels_, mode); });
  if (ranks_ != nullptr) ranks_->any(false);  // as the loop of train_phase() does after each step
}

/// Returns the milliseconds of each call of `work`, sorted.
std::vector<double> Bench::timed(long steps, const std::function<void()>& work) {
  if (device_.is_cpu()) return by_the_clock(steps, work);
  const c10::impl::VirtualGuardImpl gpu(device_.type());
  std::deque<c10::Event> events;
  const auto record = [&] {
    events.emplace_back(device_.type(), c10::EventFlag::BACKEND_DEFAULT);  // with a time stamp
    events.back().record(gpu.getStream(device_));
  };
  for (long i = 0; i < steps; ++i) {
    record();
    work();
  }
  record();
  events.back().synchronize();
  std::vector<double> milliseconds;
  for (long i = 0; i < steps; ++i) milliseconds.push_back(events[i].elapsedTime(events[i + 1]));
  std::sort(milliseconds.begin(), milliseconds.end());
  return milliseconds;
}

void Bench::time_exchange(StepTimes& times) {
  constexpr long kTimes = 20;
  const bool fp16 = phase_.parallel.exchange == ExchangeType::fp16;
  std::vector<at::Tensor> gradients;
  for (const auto& [name, weight] : weights_)
    if (weight.requires_grad())
      gradients.push_back(at::zeros_like(weight, weight.options().dtype(fp16 ? at::kHalf : at::kFloat)));
  const auto exchange = [&] { ranks_->sum(gradients); };
  timed(kTimes, exchange);
  times.exchange_milliseconds = timed(kTimes, exchange)[kTimes / 2];
  for (const at::Tensor& gradient : gradients) times.gradient_bytes += gradient.nbytes();
}

StepTimes Bench::run() {
  step_->begin_epoch({});
  timed(StepGraph::kWarmUps);
  forget_peak(device_);  // the trials of cuDNN took more memory; the next step is recorded or runs like all later ones
  timed(2);
  if (profile_) {
    [[maybe_unused]] const ProfiledRange range;
    timed(1);
  }
  double guess = timed(kGuessedOn)[kGuessedOn / 2];
  // The mean over ranks, so that all make the same number of steps.
  if (ranks_ != nullptr) guess = ranks_->sum(std::vector<double>{guess}).front() / ranks_->size();
  StepTimes times;
  const long steps = std::max(kFewestSteps, std::lround(seconds_ * 1e3 / guess));
  const double waited = ranks_ != nullptr ? ranks_->exchange_seconds() : 0;
  times.milliseconds = timed(steps);
  if (ranks_ != nullptr)
    times.waiting_milliseconds = 1e3 * (ranks_->exchange_seconds() - waited) / static_cast<double>(steps);
  times.peak_bytes = peak_gpu_memory(device_).in_tensors;
  const GpuMemory memory = gpu_memory(device_);
  times.used_bytes = memory.total - memory.free;
  times.loss = step_->totals()[0].item<double>() / static_cast<double>(steps_);
  if (!std::isfinite(times.loss))
    throw promise_error(fmt::format("the loss is {}: no times of such a run", times.loss));
  if (ranks_ != nullptr && phase_.parallel.stages.empty()) time_exchange(times);
  return times;
}

}  // namespace

StepTimes time_training_step(const StepBench& bench) { return Bench(bench).run(); }

}  // namespace octet
