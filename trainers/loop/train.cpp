// SPDX-License-Identifier: Apache-2.0
#include "trainers/loop/train.h"

#include <ATen/Context.h>
#include <fmt/core.h>

#include <filesystem>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/train/model/device.h"
#include "src/train/model/step_graph.h"
#include "trainers/gpu.h"
#include "trainers/loop/batches.h"
#include "trainers/loop/failures.h"
#include "trainers/loop/step.h"
#include "trainers/loop/training_state.h"
#include "trainers/parallel/stages.h"

namespace octet {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

BatchesOptions batches_of(const Phase& phase, const RunData& data) {
  const BatchShare mine = batch_share(phase.ranks, phase.parallel.stages);
  return {.batch_size = phase.recipe->batch_size,
          .device = phase.device(),
          .resident_images = phase.cuda.resident_images,
          .rank = mine.share,
          .ranks = mine.shares,
          .joining_epochs = phase.recipe->epochs - data.mosaic_off,
          .epochs = phase.recipe->epochs};
}

/// Seeds LibTorch's own random number generator, which only dropout uses.
void seed_generator(at::Device device, uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

/// A phase while it trains.
class Trainer {
 public:
  Trainer(const Phase& phase, const RunData& data)
      : phase_(phase),
        data_(data),
        recipe_(*phase.recipe),
        device_(phase.device()),
        owner_{phase.name, phase.fingerprint},
        steps_(steps_per_epoch(recipe_, data.train.size(), phase.name)),
        schedule_(make_schedule(recipe_, steps_, data.mosaic_off)),
        step_(phase),
        graph_(phase.cuda.graph && device_.is_cuda(), /*alone=*/phase.ranks == nullptr),
        batches_(make_batches(data, batches_of(phase, data))),
        under_way_(device_, phase.ranks) {}

  void run() {
    if (phase_.resume && std::filesystem::exists(phase_.checkpoint)) resume();
    if (position_.finished) return;
    require_scales();
    require_same_network("before training");
    if (data_.train_transform.joins() && recipe_.epochs <= data_.mosaic_off)
      say(fmt::format("note: {} has no {}: it has {} epochs, and data.mosaic_off is {}", phase_.name,
                      data_.train_transform.mosaic > 0 ? "mosaics" : "mixed images", recipe_.epochs, data_.mosaic_off));
    for (; position_.epoch < recipe_.epochs; begin_next_epoch()) {
      run_epoch();
      require_same_network(fmt::format("after epoch {}", position_.epoch + 1));
      require_finite_outputs();
      save();  // before validation, which may be interrupted too
      if (phase_.epoch_done) end_epoch();
    }
    finish();
  }

  /// Returns where training stands, once no state is being written any more.
  const Position& stopped() {
    states_.settle();
    return position_;
  }

  /// Returns a batch size that fits, after this one ran out of the GPU's memory. Nothing else may be called after it.
  std::optional<long> find_batch_that_fits() {
    graph_.forget();
    const Transform largest = largest_input(data_.train_transform);
    return batch_that_fits(step_, {.shape = {largest.channels, largest.height, largest.width},
                                   .labels = labels_shape(data_, 1, largest),
                                   .batch_size = recipe_.batch_size,
                                   .micro_batches = phase_.parallel.stages.empty() ? 1 : phase_.parallel.micro_batches,
                                   .recorded = phase_.cuda.graph,
                                   .observes = observes()});
  }

 private:
  void begin_next_epoch() { position_ = Position{.epoch = position_.epoch + 1, .first_loss = position_.first_loss}; }

  void run_epoch() {
    if (position_.step == steps_) return;  // stopped between its last step and its validation
    batches_->begin({images_seed(), position_.epoch}, position_.step);
    step_.begin_epoch({.loss_sum = position_.loss_sum,
                       .correct = position_.correct,
                       .cross_entropy_sum = position_.cross_entropy_sum});
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
    if (phase_.ranks != nullptr)  // waits for this GPU, and so perhaps for those of other ranks
      exchange_share_ = (phase_.ranks->exchange_seconds() - exchanged_before) / (position_.seconds - seconds_before);
    under_way_.epoch_ends();
    if (!stopping) return;
    save();
    wait_for_state();
    throw Error(ExitCode::interrupted, fmt::format("interrupted in phase {}, epoch {}, step {}", phase_.name,
                                                   position_.epoch + 1, position_.step));
  }

  /// Launches the next step; a GPU only begins it.
  void launch_step(const Batches::Labelled& batch) {
    under_way_.begins();
    seed_generator(device_, step_seed(phase_.seed, phase_.name, position_.epoch, position_.step));
    step_.set(learning_rate(schedule_, global_step()), global_step());
    try {
      graph_.run(
          step_.launches(mode()), [&] { step_.launch(batch.images, batch.labels, mode()); }, batch.images.numel());
    } catch (const OthersLost&) {
      throw;
    } catch (const Error& error) {  // observers on the CPU refuse values that are not finite
      if (error.code() != ExitCode::promise || device_.is_cuda()) throw;
      explain(position_.step, error.what());
    }
    under_way_.was_launched(position_.step, step_.totals());
    ++position_.step;
  }

  /// Returns whether to stop after this step. If one rank is asked to stop or met a loss that is not finite, all stop
  /// after the same step. The exchange also tells that all ranks are alive.
  bool stops() {
    const bool stop = phase_.stop() || not_finite_;
    return phase_.ranks == nullptr ? stop : phase_.ranks->any(stop);
  }

  /// Takes in the sums of the steps that have ended, or of all launched steps if `wait` is set. A loss that is not
  /// finite ends training. Ranks see it after different steps on GPUs, and end once all of them wait.
  void follow(bool wait) {
    while (!not_finite_) {
      const std::optional<StepTotals> totals = under_way_.next(wait);
      if (!totals) return;
      if (!std::isfinite(totals->loss_sum)) {
        not_finite_ = totals;
        break;
      }
      if (position_.epoch == 0 && totals->step == 0) position_.first_loss = totals->cross_entropy_sum;
      last_loss_ = totals->loss_sum - position_.loss_sum;
      position_.loss_sum = totals->loss_sum;
      position_.cross_entropy_sum = totals->cross_entropy_sum;
      position_.correct = totals->correct;
      position_.seen = (totals->step + 1) * recipe_.batch_size;
      position_.waited_seconds += totals->idle_seconds;
    }
    if (phase_.ranks == nullptr || device_.is_cpu() || wait)
      explain(not_finite_->step, "the loss is " + decimal(not_finite_->loss_sum));
  }

  TrainStep::Mode mode() const {
    const double share_done = static_cast<double>(global_step()) / static_cast<double>(schedule_.steps);
    return {.batch_norm_training = share_done < phase_.freeze_batch_norm,
            .observe = phase_.quantized != nullptr && share_done < phase_.freeze_observers,
            .box_l1 = recipe_.box_l1 && position_.epoch >= recipe_.epochs - data_.mosaic_off};
  }

  EpochResult result() const {
    const double seen = static_cast<double>(position_.seen);
    return {.epoch = position_.epoch,
            .validate = validates(),
            .train_loss = position_.loss_sum / (seen / recipe_.batch_size),
            .train_top1 = position_.correct / seen,
            .first_loss = position_.first_loss,
            .train_cross_entropy = position_.cross_entropy_sum / (seen / recipe_.batch_size),
            .learning_rate = learning_rate(schedule_, global_step() - 1),
            .images_per_second = seen / position_.seconds,
            .seconds = position_.seconds,
            .exchange_share = exchange_share_,
            .data_wait_share = position_.waited_seconds / position_.seconds,
            .gpu_memory_bytes = peak_gpu_memory(device_).held};
  }

  bool validates() const {
    const int done = position_.epoch + 1;
    return done % recipe_.val_interval == 0 || done == recipe_.epochs || (done == 1 && phase_.validates_first);
  }

  /// Tells that the epoch is done. What is validated is the network that would be exported: with EMA the average, whose
  /// observed ranges are its own, too.
  void end_epoch() {
    if (step_.average() == nullptr || !validates()) return tell_epoch_done();
    step_.average()->while_in_place([this] {
      if (!observes()) return tell_epoch_done();
      while_observed_again(*phase_.quantized, data_, recipe_.batch_size, [this] { tell_epoch_done(); });
    });
  }

  void tell_epoch_done() {
    try {
      phase_.epoch_done(result());
    } catch (const c10::OutOfMemoryError&) {  // the batch size of training is not the cause
      throw validation_failed(phase_, stopped(),
                              "the GPU is out of memory; take a smaller evaluate.batch_size, or free the GPU");
    } catch (const OthersLost&) {
      throw;
    } catch (const NotFinite& error) {
      const std::string where = non_finite_output(phase_, data_);
      explain_epoch(error.what(), where.empty() ? "an image of the validation" : where);
    } catch (const Error& error) {
      wait_for_state();  // which a full disk keeps from being written before it keeps the report's page
      if (error.code() != ExitCode::promise) throw;
      throw validation_failed(phase_, position_, error.what());
    }
  }

  void finish() {
    step_.free_gradients();
    if (step_.average() != nullptr) {
      step_.average()->apply();
      if (observes()) {
        observe_again(*phase_.quantized, data_, recipe_.batch_size);
        if (phase_.ranks != nullptr) take_from_first(*phase_.ranks, *phase_.weights, phase_.quantized);
      }
    }
    require_same_network("at the end");
    position_.finished = true;
    save();
    wait_for_state();
  }

  /// Begins writing the state, which is that of now.
  void save() {
    require_finite(phase_, position_);
    if (phase_.ranks != nullptr && !phase_.ranks->first()) return;
    TensorFile file;
    put_tensors(file, "weights", *phase_.weights);
    if (phase_.quantized != nullptr) put_tensors(file, "quantizer", phase_.quantized->state());
    if (!position_.finished) step_.put_state(file);
    explain_state([&] { states_.write(phase_.checkpoint, owner_, position_, std::move(file)); });
  }

  void wait_for_state() {
    explain_state([this] { states_.wait(); });
  }

  /// Adds to the error of a state that could not be written which one there is.
  void explain_state(const std::function<void()>& write) try { write(); } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}. {}", error.what(), kept_state(phase_)));
  }

  void resume() {
    TensorFile file;
    position_ = read_state(phase_.checkpoint, owner_, file);
    if (position_.epoch > recipe_.epochs || position_.step > steps_)
      throw data_error(fmt::format("{}: damaged: epoch {}, step {} of {} epochs of {} steps", phase_.checkpoint,
                                   position_.epoch, position_.step, recipe_.epochs, steps_));
    restore_weights(file, *phase_.weights, phase_.checkpoint);
    if (phase_.quantized != nullptr) phase_.quantized->load_state(get_tensors(file, "quantizer"));
    if (position_.finished) {
      say(fmt::format("{}: finished before, loaded from {}", phase_.name, phase_.checkpoint));
      return;
    }
    step_.restore_state(file, phase_.checkpoint);
    say(fmt::format("{}: resumed from {}, epoch {}, step {}", phase_.name, phase_.checkpoint, position_.epoch + 1,
                    position_.step));
  }

  /// Refuses QAT of a network that was never calibrated and so has no scales, unless all of them are observed.
  void require_scales() const {
    if (phase_.quantized == nullptr || phase_.quantized->has_scales()) return;
    const bool learns = !phase_.quantized->learned_scales().empty();
    if (mode().observe && !learns) return;
    throw usage_error(fmt::format(
        "phase {}: {}, but the network was never calibrated; calibrate it first, or set quant.scales: observed{}",
        phase_.name,
        learns ? "learned scales begin as calibrated"
               : "the ranges of activations are to stay as calibrated (quant.scales: fixed)",
        learns ? " and quant.weight_calibrator: mse" : ""));
  }

  void require_same_network(const std::string& when) const {
    if (phase_.ranks == nullptr) return;
    std::map<std::string, at::Tensor> tensors(phase_.weights->begin(), phase_.weights->end());
    if (phase_.quantized != nullptr) tensors.merge(phase_.quantized->state());
    phase_.ranks->require_same(tensors, fmt::format("phase {}, {}", phase_.name, when));
  }

  /// Every rank checks the same weights on the same images, so all of them throw or none does.
  void require_finite_outputs() const {
    if (phase_.quantized == nullptr) return;
    if (const std::string where = non_finite_output(phase_, data_); !where.empty())
      explain_epoch("the float network with these weights overflows", where);
  }

  [[noreturn]] void explain_epoch(const std::string& what, const std::string& where) const {
    Position last = position_;
    last.step = std::max(0L, last.step - 1);
    throw diverged(phase_, last, what, where);
  }

  /// Repeats the forward pass of a step of this epoch to find where it went wrong. That works because no later step has
  /// changed the weights.
  [[noreturn]] void explain(long step, const std::string& reason) {
    position_.step = step;
    const std::string what =
        last_loss_ ? fmt::format("{} (a step before the loss was {:.4g})", reason, *last_loss_) : reason;
    if (phase_.ranks != nullptr && !phase_.parallel.stages.empty())  // this rank's copy of other stages is outdated
      throw diverged(phase_, position_, what, "a layer of some stage: one process without parallel.stages can name it");
    batches_->begin({images_seed(), position_.epoch}, step);
    const Batches::Labelled* batch = batches_->next();
    const Autocast autocast(device_.type(), recipe_.precision);
    seed_generator(device_, step_seed(phase_.seed, phase_.name, position_.epoch, step));
    const WalkMode walk_mode{.training = true, .batch_norm_training = mode().batch_norm_training};
    throw diverged(phase_, position_, what, first_non_finite_layer(phase_, batch->images, walk_mode));
  }

  bool observes() const { return phase_.quantized != nullptr && phase_.freeze_observers > 0; }
  uint64_t images_seed() const {
    return step_seed(phase_.seed, phase_.images_of.empty() ? phase_.name : phase_.images_of, 0, 0);
  }
  long global_step() const { return position_.epoch * steps_ + position_.step; }

  const Phase& phase_;
  const RunData& data_;
  const OptimizerRecipe& recipe_;
  const at::Device device_;
  const StateOwner owner_;
  const long steps_;  // in an epoch
  const Schedule schedule_;
  TrainStep step_;
  StepGraph graph_;
  std::unique_ptr<Batches> batches_;
  StepsUnderWay under_way_;
  std::optional<double> last_loss_;       // of the last step known to have ended
  std::optional<StepTotals> not_finite_;  // of the first step whose loss is not finite
  double exchange_share_ = 0;             // of the last epoch, since this process resumed it
  StateWriter states_;
  Position position_;  // its step counts launches, its sums only steps known to have ended
};

}  // namespace

void train_phase(const Phase& phase, const RunData& data) {
  const OwnStream stream(phase.device());
  std::optional<Trainer> trainer;
  const auto position = [&] { return trainer ? trainer->stopped() : Position{}; };
  try {
    trainer.emplace(phase, data);
    trainer->run();
  } catch (const c10::OutOfMemoryError&) {
    const GpuMemory then = gpu_memory(phase.device());
    const bool try_smaller = trainer.has_value() && phase.ranks == nullptr;  // a step of one rank waits for the others
    throw out_of_memory(phase, position(), then, try_smaller ? trainer->find_batch_that_fits() : std::nullopt);
  } catch (const c10::Error& error) {
    if (phase.device().is_cpu()) throw;
    throw failed(phase, position(), error.what_without_backtrace());
  } catch (const Error& error) {  // one of our kernels may be the first to see that the GPU failed
    if (gpu_works(phase.device())) throw;
    throw failed(phase, position(), error.what());
  }
  trainer.reset();  // with the memory of the recorded step
  release_cached(phase.device());
}

}  // namespace octet
