#include "trainers/train.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/from_blob.h>
#include <fmt/core.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <optional>

#include "src/common/error.h"
#include "src/common/progress.h"
#include "trainers/average.h"
#include "trainers/diverged.h"
#include "trainers/optimizer.h"
#include "trainers/precision.h"
#include "trainers/schedule.h"
#include "trainers/training_state.h"

namespace octet {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

uint64_t split_mix(uint64_t x) {  // Steele, Lea & Flood 2014
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

void seed_generator(uint64_t seed) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

/// Memory format of all weights, in place: models that share the tensors see it.
void set_layout(Weights& weights, bool channels_last) {
  for (auto& [name, tensor] : weights) {
    if (tensor.dim() != 4) continue;
    const auto format = channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
    tensor.set_data(tensor.detach().contiguous(format));
  }
}

class Trainer {
 public:
  Trainer(const Phase& phase, const RunData& data);
  void run();

 private:
  void resume();
  void run_epoch();
  void train_step(const Batch& batch);
  at::Tensor forward(const at::Tensor& x);
  double share_done() const;  // of the phase's steps, 0..1
  WalkMode walk_mode() const;
  EpochResult result() const;
  void save() const;
  long global_step() const { return position_.epoch * steps_ + position_.step; }

  const Phase& phase_;
  const RunData& data_;
  const OptimizerRecipe& recipe_;
  const StateOwner owner_;
  const long steps_;  // in an epoch
  const Schedule schedule_;
  const Precision precision_;
  Optimizer optimizer_;
  std::optional<WeightAverage> average_;
  std::optional<GradScaler> scaler_;
  Position position_;
};

long steps_per_epoch(const OptimizerRecipe& recipe, size_t images, const std::string& phase) {
  const long steps = static_cast<long>(images) / recipe.batch_size;
  if (steps == 0) {
    throw usage_error(fmt::format("{}: batch_size {} is more than the {} training images; use a smaller batch", phase,
                                  recipe.batch_size, images));
  }
  return steps;
}

Weights& laid_out(const Phase& phase) {
  set_layout(*phase.weights, phase.recipe->channels_last);
  return *phase.weights;
}

Trainer::Trainer(const Phase& phase, const RunData& data)
    : phase_(phase),
      data_(data),
      recipe_(*phase.recipe),
      owner_{phase.name, phase.fingerprint},
      steps_(steps_per_epoch(recipe_, data.train.size(), phase.name)),
      schedule_(make_schedule(recipe_, steps_)),
      precision_(precision_from_name(recipe_.precision)),
      optimizer_(recipe_, *phase.graph, laid_out(phase)) {
  if (recipe_.ema > 0) average_.emplace(*phase.weights, recipe_.ema);
  if (precision_ == Precision::fp16) scaler_.emplace(at::kCPU);
}

void Trainer::run() {
  if (phase_.resume && std::filesystem::exists(phase_.checkpoint)) resume();
  if (position_.finished) return;
  for (; position_.epoch < recipe_.epochs; position_ = Position{.epoch = position_.epoch + 1}) {
    run_epoch();
    save();  // before validation, which may be interrupted too
    if (phase_.epoch_done) {
      std::optional<WeightAverage::Swap> averages_in_place;
      if (average_) averages_in_place.emplace(*average_);
      phase_.epoch_done(result());
    }
  }
  if (average_) average_->apply();
  position_.finished = true;
  save();
}

void Trainer::run_epoch() {
  if (position_.step == steps_) return;  // stopped between its last step and its validation
  Loader loader(*data_.train_set, data_.train, data_.train_transform,
                {.batch_size = recipe_.batch_size,
                 .train = true,
                 .seed = step_seed(phase_.seed, phase_.name, 0, 0),
                 .epoch = position_.epoch,
                 .first_batch = static_cast<int>(position_.step),
                 .workers = data_.workers});
  Progress progress(fmt::format("{} {}/{}", phase_.name, position_.epoch + 1, recipe_.epochs),
                    steps_ * recipe_.batch_size);
  const auto start = Clock::now();
  const double seconds_before = position_.seconds, waited_before = position_.waited_seconds;
  Batch batch;
  while (loader.next(batch)) {
    train_step(batch);
    ++position_.step;
    position_.seconds = seconds_before + seconds_since(start);
    position_.waited_seconds = waited_before + loader.waited_seconds();
    const EpochResult so_far = result();
    progress.update(position_.seen,
                    fmt::format("loss {:.3f}  top-1 {:.1f} %", so_far.train_loss, 100 * so_far.train_top1));
    if (phase_.stop()) {
      save();
      throw Error(ExitCode::interrupted,
                  fmt::format("interrupted in phase {}, epoch {}, step {}; saved: continue with --resume", phase_.name,
                              position_.epoch + 1, position_.step));
    }
  }
}

void Trainer::train_step(const Batch& batch) {
  const uint64_t seed = step_seed(phase_.seed, phase_.name, position_.epoch, position_.step);
  const Shape shape{data_.train_transform.channels, data_.train_transform.height, data_.train_transform.width};
  at::Tensor x = images_to_tensor(batch.images.data(), batch.size, shape, data_.mean, data_.std);
  if (!recipe_.channels_last) x = x.contiguous();
  const at::Tensor labels =
      at::from_blob(const_cast<int64_t*>(batch.labels.data()), {batch.size}, at::TensorOptions(at::kLong));

  seed_generator(seed);  // dropout
  optimizer_.zero_gradients();
  at::Tensor logits, loss;
  double loss_value = 0;
  {
    const Autocast autocast(at::kCPU, precision_);
    std::string what;
    try {
      logits = forward(x);
      loss = at::cross_entropy_loss(logits, labels, /*weight=*/{}, at::Reduction::Mean, /*ignore_index=*/-100,
                                    recipe_.label_smoothing);
      loss_value = loss.item<double>();
      if (!std::isfinite(loss_value)) what = fmt::format("the loss is {}", loss_value);
    } catch (const Error& error) {  // observers refuse values that are not finite
      if (error.code() != ExitCode::promise) throw;
      what = error.what();
    }
    if (!what.empty()) {
      seed_generator(seed);
      throw diverged(phase_, position_, what, first_non_finite_layer(phase_, x, walk_mode()));
    }
  }
  (scaler_ ? scaler_->scale(loss) : loss).backward();

  std::optional<at::Tensor> found_inf;
  if (scaler_) found_inf = scaler_->unscale(optimizer_.gradients());
  if (recipe_.clip_gradient > 0) clip_gradients(optimizer_.gradients(), recipe_.clip_gradient);
  optimizer_.step(learning_rate(schedule_, global_step()), found_inf);
  if (scaler_) scaler_->update(*found_inf);
  if (average_) average_->update(global_step());

  position_.loss_sum += loss_value;
  position_.correct += logits.argmax(1).eq(labels).sum().item<int64_t>();
  position_.seen += batch.size;
}

double Trainer::share_done() const { return static_cast<double>(global_step()) / static_cast<double>(schedule_.steps); }

WalkMode Trainer::walk_mode() const {
  const bool frozen = phase_.quantized != nullptr && share_done() >= phase_.freeze_batch_norm;
  return {.training = true, .batch_norm_training = !frozen};
}

at::Tensor Trainer::forward(const at::Tensor& x) {
  const WalkMode mode = walk_mode();
  if (phase_.quantized == nullptr) return walk(*phase_.graph, *phase_.weights, x, mode);
  return phase_.quantized->forward(x, {.training = mode.training,
                                       .batch_norm_training = mode.batch_norm_training,
                                       .observe = share_done() < phase_.freeze_observers,
                                       .quantize = true});
}

EpochResult Trainer::result() const {
  EpochResult result;
  result.epoch = position_.epoch;
  result.train_loss = position_.loss_sum / static_cast<double>(position_.step);
  result.train_top1 = static_cast<double>(position_.correct) / static_cast<double>(position_.seen);
  result.learning_rate = learning_rate(schedule_, global_step() - 1);
  result.images_per_second = static_cast<double>(position_.seen) / position_.seconds;
  result.data_wait_share = position_.waited_seconds / position_.seconds;
  result.seconds = position_.seconds;
  return result;
}

void Trainer::save() const {
  require_finite_weights(phase_, position_);
  TensorFile file;
  put_tensors(file, "weights", *phase_.weights);
  if (phase_.quantized != nullptr) put_tensors(file, "quantizer", phase_.quantized->state());
  if (!position_.finished) {
    put_tensors(file, "optimizer", optimizer_.state());
    if (average_) put_tensors(file, "average", average_->average());
    if (scaler_) put_tensors(file, "scaler", scaler_->state());
  }
  write_state(phase_.checkpoint, owner_, position_, std::move(file));
}

void Trainer::resume() {
  TensorFile file;
  position_ = read_state(phase_.checkpoint, owner_, file);
  if (position_.epoch > recipe_.epochs || position_.step > steps_)
    throw data_error(fmt::format("{}: damaged: epoch {}, step {} of {} epochs of {} steps", phase_.checkpoint,
                                 position_.epoch, position_.step, recipe_.epochs, steps_));
  restore_tensors(file, "weights", *phase_.weights, phase_.checkpoint);
  if (phase_.quantized != nullptr) phase_.quantized->load_state(get_tensors(file, "quantizer"));
  if (position_.finished) {
    say(fmt::format("{}: finished before, loaded from {}", phase_.name, phase_.checkpoint));
    return;
  }
  restore_tensors(file, "optimizer", optimizer_.state(), phase_.checkpoint);
  if (average_) restore_tensors(file, "average", average_->average(), phase_.checkpoint);
  if (scaler_) restore_tensors(file, "scaler", scaler_->state(), phase_.checkpoint);
  say(fmt::format("{}: resumed from {}, epoch {}, step {}", phase_.name, phase_.checkpoint, position_.epoch + 1,
                  position_.step));
}

}  // namespace

uint64_t step_seed(uint64_t seed, const std::string& phase, int epoch, long step) {
  uint64_t mixed = split_mix(seed);
  for (const char letter : phase) mixed = split_mix(mixed ^ static_cast<uint64_t>(letter));
  mixed = split_mix(mixed ^ static_cast<uint64_t>(epoch));
  return split_mix(mixed ^ static_cast<uint64_t>(step));
}

void train_phase(const Phase& phase, const RunData& data) { Trainer(phase, data).run(); }

}  // namespace octet
