// SPDX-License-Identifier: Apache-2.0
#include "tools/lab/bench/time_step.h"

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <optional>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/cuda/device.h"
#include "src/quant/plan.h"
#include "src/train/model/device.h"
#include "src/train/model/step_graph.h"
#include "trainers/gpu.h"
#include "trainers/loop/step.h"
#include "trainers/run/run.h"

namespace octet {
namespace {

constexpr long kFewestSteps = 10, kGuessedOn = 5;
constexpr long kCalibrationImages = 32;

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

  const at::Device device_ = choose_device("cuda");
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
    : recipe_(bench.optimizer),
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
  labels_ = at::randint(graph_.classes(), {recipe_.batch_size}, on_device.dtype(at::kLong));
  phase_ = {.name = bench.qat ? "qat" : "float",
            .recipe = &recipe_,
            .cuda = bench.cuda,
            .parallel = bench.parallel,
            .graph = &graph_,
            .weights = &weights_,
            .ranks = ranks_};
  if (bench.qat) {
    Run run;
    run.recipe.quant = bench.quant;
    run.recipe.qat.forward = bench.forward;
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
    const ProfiledRange range;
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
