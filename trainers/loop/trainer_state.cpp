// Where a phase is saved and taken up again, and that all ranks stand at the same place.
#include <fmt/core.h>

#include <map>

#include "src/common/error.h"
#include "src/common/progress.h"
#include "trainers/loop/diverged.h"
#include "trainers/loop/reestimate.h"
#include "trainers/loop/take_from_first.h"
#include "trainers/loop/trainer.h"

namespace octet {

void Trainer::resume() {
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

void Trainer::save() const {
  require_finite(phase_, position_);
  if (phase_.ranks != nullptr && !phase_.ranks->first()) return;
  TensorFile file;
  put_tensors(file, "weights", *phase_.weights);
  if (phase_.quantized != nullptr) put_tensors(file, "quantizer", phase_.quantized->state());
  if (!position_.finished) step_.put_state(file);
  try {
    write_state(phase_.checkpoint, owner_, position_, std::move(file));
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}. {}", error.what(), kept_state(phase_)));
  }
}

void Trainer::finish() {
  step_.free_gradients();
  if (const OscillationFreezer* freezer = step_.freezer())
    say(fmt::format("{}: {:.2f} % of the weights oscillated and were frozen", phase_.name, 100 * freezer->frozen()));
  const bool averaged = step_.average() != nullptr, reestimates = phase_.reestimate_batch_norm > 0;
  if (averaged) step_.average()->apply();
  if (reestimates)
    reestimate_batch_norm(*phase_.quantized, data_, phase_.reestimate_batch_norm, recipe_.batch_size, pictures_seed());
  const bool observes_again = observes() && (averaged || reestimates);
  if (observes_again) observe_again(*phase_.quantized, data_, recipe_.batch_size);
  if (phase_.ranks != nullptr && (reestimates || observes_again))
    take_from_first(*phase_.ranks, *phase_.weights, phase_.quantized);
  require_same_network("at the end");
  position_.finished = true;
  save();
}

void Trainer::require_same_network(const std::string& when) const {
  if (phase_.ranks == nullptr) return;
  std::map<std::string, at::Tensor> tensors(phase_.weights->begin(), phase_.weights->end());
  if (phase_.quantized != nullptr) tensors.merge(phase_.quantized->state());
  phase_.ranks->require_same(tensors, fmt::format("phase {}, {}", phase_.name, when));
}

}  // namespace octet
