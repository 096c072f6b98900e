// What a phase cannot begin or go on with, in a sentence.
#include <fmt/core.h>

#include <algorithm>

#include "src/common/error.h"
#include "src/model/autocast.h"
#include "trainers/gpu.h"
#include "trainers/loop/diverged.h"
#include "trainers/loop/gpu_failure.h"
#include "trainers/loop/trainer.h"

namespace octet {

/// What was never calibrated has no scales to train with, unless all of them are observed.
void Trainer::require_scales() const {
  if (phase_.quantized == nullptr || phase_.quantized->has_scales()) return;
  const bool learns = !phase_.quantized->learned_scales().empty();
  if (mode().observe && !learns && !phase_.quantized->weight_scale_tensor().defined()) return;
  throw usage_error(fmt::format(
      "phase {}: {}, but the network was never calibrated; calibrate it first, or set quant.scales: observed{}",
      phase_.name,
      learns ? "learned scales begin as calibrated"
             : "the ranges of activations are to stay as calibrated (quant.scales: fixed)",
      learns ? " and quant.weight_calibrator: mse" : ""));
}

void Trainer::validate_epoch() const {
  try {
    phase_.epoch_done(result());
  } catch (const c10::OutOfMemoryError&) {  // no batch of the training's is to blame
    throw validation_failed(phase_, position_,
                            "the GPU is out of memory; take a smaller evaluate.batch_size, or free the GPU");
  } catch (const OthersLost&) {
    throw;
  } catch (const NotFinite& error) {
    const std::string where = non_finite_output(phase_, data_);
    explain_epoch(error.what(), where.empty() ? "a picture of the validation" : where);
  } catch (const Error& error) {
    if (error.code() != ExitCode::promise) throw;
    throw validation_failed(phase_, position_, error.what());
  }
}

void Trainer::explain_epoch(const std::string& what, const std::string& where) const {
  Position last = position_;
  last.step = std::max(0L, last.step - 1);
  throw diverged(phase_, last, what, where);
}

/// All ranks have the same weights, and look at the same pictures.
void Trainer::require_finite_outputs() const {
  if (phase_.quantized == nullptr) return;
  if (const std::string where = non_finite_output(phase_, data_); !where.empty())
    explain_epoch("the float network with these weights overflows", where);
}

/// Runs the forward of a step of this epoch again, to find where it went wrong: no step since has changed the weights.
void Trainer::explain(long step, const std::string& reason) {
  position_.step = step;
  const std::string what =
      last_loss_ ? fmt::format("{} (a step before the loss was {:.4g})", reason, *last_loss_) : reason;
  if (phase_.ranks != nullptr && !phase_.parallel.stages.empty())  // whose weights of other stages are old
    throw diverged(phase_, position_, what, "a layer of some stage: one process without parallel.stages can name it");
  batches_->begin({pictures_seed(), position_.epoch}, step);
  const Batches::Labelled* batch = batches_->next();
  const Autocast autocast(device_.type(), value_named(kPrecisions, recipe_.precision, "precision"));
  seed_generator(device_, step_seed(phase_.seed, phase_.name, position_.epoch, step));
  const WalkMode walk_mode{.training = true, .batch_norm_training = mode().batch_norm_training};
  throw diverged(phase_, position_, what, first_non_finite_layer(phase_, batch->images, walk_mode));
}

std::optional<long> Trainer::batch_that_fits() {
  graph_.forget();
  const Transform& t = data_.train_transform;
  return octet::batch_that_fits(step_,
                                {.shape = {t.channels, t.height, t.width},
                                 .labels = labels_shape(data_, 1),
                                 .batch_size = recipe_.batch_size,
                                 .micro_batches = phase_.parallel.stages.empty() ? 1 : phase_.parallel.micro_batches,
                                 .recorded = phase_.cuda.graph,
                                 .observes = observes()});
}

void train_phase(const Phase& phase, const RunData& data) {
  const OwnStream stream(phase.device());
  std::optional<Trainer> trainer;
  const auto position = [&] { return trainer ? trainer->position() : Position{}; };
  try {
    trainer.emplace(phase, data);
    trainer->run();
  } catch (const c10::OutOfMemoryError&) {
    const GpuMemory then = gpu_memory(phase.device());
    const bool try_smaller = trainer.has_value() && phase.ranks == nullptr;  // a step alone would wait for the others
    throw out_of_memory(phase, position(), then, try_smaller ? trainer->batch_that_fits() : std::nullopt);
  } catch (const c10::Error& error) {
    if (phase.device().is_cpu()) throw;
    throw failed(phase, position(), error.what_without_backtrace());
  } catch (const Error& error) {  // a kernel of ours may be the first to see that the GPU failed
    if (gpu_works(phase.device())) throw;
    throw failed(phase, position(), error.what());
  }
  trainer.reset();  // with the recorded step's memory
  release_cached(phase.device());
}

}  // namespace octet
