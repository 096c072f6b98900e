// One phase while it trains: for the files of the loop alone (train.h is what others call).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "src/model/step_graph.h"
#include "trainers/batches/batches.h"
#include "trainers/loop/schedule.h"
#include "trainers/loop/step.h"
#include "trainers/loop/steps_under_way.h"
#include "trainers/loop/train.h"
#include "trainers/loop/training_state.h"

namespace octet {

/// LibTorch's own generator of random numbers: in a network only dropout asks it.
void seed_generator(at::Device device, uint64_t seed);

class Trainer {
 public:
  Trainer(const Phase& phase, const RunData& data);
  void run();

  const Position& position() const { return position_; }
  /// After running out of the GPU's memory; ends this trainer.
  std::optional<long> batch_that_fits();

 private:
  void resume();
  void run_epoch();
  void validate();
  void finish();
  void validate_epoch() const;
  void require_finite_outputs() const;
  void require_scales() const;
  void launch_step(const Batches::Labelled& batch);
  void follow(bool wait);
  [[noreturn]] void explain(long step, const std::string& reason);
  [[noreturn]] void explain_epoch(const std::string& what, const std::string& where) const;
  TrainStep::Mode mode() const;
  bool observes() const { return phase_.quantized != nullptr && phase_.freeze_observers > 0; }
  EpochResult result() const;
  void save() const;
  bool stops();
  void require_same_network(const std::string& when) const;
  uint64_t pictures_seed() const {
    return step_seed(phase_.seed, phase_.pictures_of.empty() ? phase_.name : phase_.pictures_of, 0, 0);
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
  std::optional<double> first_loss_, last_loss_;  // of the phase's first step, of the last that is known to be done
  double exchange_share_ = 0;                     // of the last epoch, or of what was left of it when it was resumed
  Position position_;                             // steps launched; sums of those that are known to be done
};

}  // namespace octet
