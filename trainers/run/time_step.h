// Time and memory of one training step on the GPU, on random pictures that stay there.
#pragma once

#include <cstddef>
#include <vector>

#include "src/graph/zoo.h"
#include "src/recipe/recipe.h"
#include "trainers/ranks/ranks.h"

namespace octet {

struct StepBench {
  ModelSpec model;
  bool qat = false;                ///< with fake quantizers, calibrated on some of the pictures
  bool freeze_batch_norm = false;  ///< its statistics stay from the first step
  OptimizerRecipe optimizer;       ///< batch size, precision, layout, ...
  QuantRecipe quant;
  CudaRecipe cuda;
  ParallelRecipe parallel;
  double seconds = 3;  ///< of measuring, after warm-up; at least 10 steps are made
  Ranks* ranks =
      nullptr;  ///< each with a batch of `optimizer`, or with a stage of the network; null: this process alone
};

struct StepTimes {
  std::vector<double> milliseconds;  ///< of each step, from start to start by device events, sorted
  size_t peak_bytes = 0;             ///< most that tensors took at a time, once warm
  double loss = 0;                   ///< mean over all steps made
  double exchange_milliseconds = 0;  ///< with ranks: of the exchange of gradients alone, nothing beside it
  double waiting_milliseconds = 0;   ///< with ranks: of a step, what the backward pass did not hide of it
  size_t gradient_bytes = 0;         ///< that such an exchange sums
};

/// The very step of train_phase(). Throws Error(usage) without a usable GPU, Error(promise) if the loss is not finite:
/// times on NaN mean nothing. With ranks every one calls it alike and gets its own times.
StepTimes time_training_step(const StepBench& bench);

}  // namespace octet
