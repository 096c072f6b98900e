#include "trainers/loop/train.h"

#include <ATen/Context.h>
#include <fmt/core.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <mutex>

#include "src/common/error.h"
#include "src/common/progress.h"
#include "src/common/text_table.h"
#include "trainers/gpu.h"
#include "trainers/loop/reestimate.h"
#include "trainers/loop/stages.h"
#include "trainers/loop/trainer.h"

namespace octet {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

BatchesOptions batches_of(const Phase& phase) {
  const BatchShare mine = batch_share(phase.ranks, phase.parallel.stages);
  return {.batch_size = phase.recipe->batch_size,
          .device = phase.device(),
          .resident_images = phase.cuda.resident_images,
          .rank = mine.share,
          .ranks = mine.shares};
}

}  // namespace

/// LibTorch's own generator of random numbers: in a network only dropout asks it.
void seed_generator(at::Device device, uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

Trainer::Trainer(const Phase& phase, const RunData& data)
    : phase_(phase),
      data_(data),
      recipe_(*phase.recipe),
      device_(phase.device()),
      owner_{phase.name, phase.fingerprint},
      steps_(steps_per_epoch(recipe_, data.train.size(), phase.name)),
      schedule_(make_schedule(recipe_, steps_)),
      step_(phase),
      graph_(phase.cuda.graph && device_.is_cuda()),
      batches_(make_batches(data, batches_of(phase))),
      under_way_(device_, phase.ranks) {}

void Trainer::run() {
  if (phase_.resume && std::filesystem::exists(phase_.checkpoint)) resume();
  if (position_.finished) return;
  require_scales();
  require_same_network("before training");
  for (; position_.epoch < recipe_.epochs; position_ = Position{.epoch = position_.epoch + 1}) {
    run_epoch();
    require_same_network(fmt::format("after epoch {}", position_.epoch + 1));
    require_finite_outputs();
    save();  // before validation, which may be interrupted too
    if (phase_.epoch_done) validate();
  }
  finish();
}

/// With EMA it is the average that is validated, and exported at the end: observed ranges must be the average's too.
void Trainer::validate() {
  if (step_.average() == nullptr) return validate_epoch();
  step_.average()->while_in_place([this] {
    if (!observes()) return validate_epoch();
    while_observed_again(*phase_.quantized, data_, recipe_.batch_size, [this] { validate_epoch(); });
  });
}

/// Whoever is asked to stop, all ranks stop after the same step. It is also how they see that all are alive.
bool Trainer::stops() {
  const bool stop = phase_.stop();
  return phase_.ranks == nullptr ? stop : phase_.ranks->any(stop);
}

void Trainer::run_epoch() {
  if (position_.step == steps_) return;  // stopped between its last step and its validation
  batches_->begin({pictures_seed(), position_.epoch}, position_.step);
  step_.begin_epoch(
      {.loss_sum = position_.loss_sum, .correct = position_.correct, .cross_entropy_sum = position_.cross_entropy_sum});
  under_way_.epoch_begins();
  forget_peak(device_);
  Progress progress(fmt::format("{} {}/{}", phase_.name, position_.epoch + 1, recipe_.epochs),
                    steps_ * recipe_.batch_size, "images", position_.step * recipe_.batch_size);
  const auto start = Clock::now();
  const double exchanged_before = phase_.ranks != nullptr ? phase_.ranks->exchange_seconds() : 0;
  const double seconds_before = position_.seconds, waited_before = position_.waited_seconds;
  bool stopping = false;
  while (const Batches::Labelled* batch = stopping ? nullptr : batches_->next()) {
    launch_step(*batch);
    batches_->fetch_ahead();
    if (device_.is_cpu()) position_.waited_seconds = waited_before + batches_->waited_seconds();
    stopping = stops();
    follow(/*wait=*/stopping || position_.step == steps_);
    position_.seconds = seconds_before + seconds_since(start);
    if (position_.seen > 0) {
      const EpochResult so_far = result();
      progress.update(position_.seen,
                      fmt::format("loss {:.3f}  {} {:.1f} %", so_far.train_cross_entropy,
                                  score_names(data_.train_set->labels()).share, 100 * so_far.train_top1));
    }
  }
  step_.take_from_owners();
  if (phase_.ranks != nullptr)  // waits for the GPU, which may wait for another's here, too
    exchange_share_ = (phase_.ranks->exchange_seconds() - exchanged_before) / (position_.seconds - seconds_before);
  under_way_.epoch_ends();
  if (!stopping) return;
  save();
  throw Error(ExitCode::interrupted, fmt::format("interrupted in phase {}, epoch {}, step {}", phase_.name,
                                                 position_.epoch + 1, position_.step));
}

/// The next step; on a GPU it only begins.
void Trainer::launch_step(const Batches::Labelled& batch) {
  under_way_.begins();
  seed_generator(device_, step_seed(phase_.seed, phase_.name, position_.epoch, position_.step));
  step_.set(learning_rate(schedule_, global_step()), global_step(), phase_.freezing.at(global_step(), schedule_.steps));
  try {
    graph_.run(mode().number(), [&] { step_.launch(batch.images, batch.labels, mode()); });
  } catch (const OthersLost&) {
    throw;
  } catch (const Error& error) {  // observers on the CPU refuse values that are not finite
    if (error.code() != ExitCode::promise || device_.is_cuda()) throw;
    explain(position_.step, error.what());
  }
  under_way_.was_launched(position_.step, step_.totals());
  ++position_.step;
}

/// Takes in what is known of the steps so far; `wait`: of all of them.
void Trainer::follow(bool wait) {
  while (const std::optional<StepTotals> totals = under_way_.next(wait)) {
    if (!std::isfinite(totals->loss_sum)) explain(totals->step, "the loss is " + decimal(totals->loss_sum));
    if (position_.epoch == 0 && totals->step == 0) first_loss_ = totals->cross_entropy_sum;
    last_loss_ = totals->loss_sum - position_.loss_sum;
    position_.loss_sum = totals->loss_sum;
    position_.cross_entropy_sum = totals->cross_entropy_sum;
    position_.correct = totals->correct;
    position_.seen = (totals->step + 1) * recipe_.batch_size;
    position_.waited_seconds += totals->idle_seconds;
  }
}

TrainStep::Mode Trainer::mode() const {
  const double share_done = static_cast<double>(global_step()) / static_cast<double>(schedule_.steps);
  return {.batch_norm_training = share_done < phase_.freeze_batch_norm,
          .observe = phase_.quantized != nullptr && share_done < phase_.freeze_observers};
}

EpochResult Trainer::result() const {
  EpochResult result;
  result.epoch = position_.epoch;
  result.first_loss = first_loss_;
  const double seen = static_cast<double>(position_.seen);
  result.train_loss = position_.loss_sum / (seen / recipe_.batch_size);
  result.train_cross_entropy = position_.cross_entropy_sum / (seen / recipe_.batch_size);
  result.train_top1 = position_.correct / seen;
  result.learning_rate = learning_rate(schedule_, global_step() - 1);
  result.images_per_second = seen / position_.seconds;
  result.exchange_share = exchange_share_;
  result.data_wait_share = position_.waited_seconds / position_.seconds;
  result.seconds = position_.seconds;
  result.gpu_memory_bytes = peak_gpu_memory(device_).held;
  return result;
}

}  // namespace octet
