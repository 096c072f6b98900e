// SPDX-License-Identifier: Apache-2.0
// Time and memory of one training step, on random images that stay on its device.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "src/net/zoo.h"
#include "src/recipe/recipe.h"
#include "trainers/parallel/ranks.h"

namespace octet {

struct StepBench {
  ModelSpec model;                              ///< a detector of the zoo learns boxes, others a class an image
  std::string device = "cuda";                  ///< or "cpu", by the clock: to see that a step runs
  int boxes = 8;                                ///< of each image of a detector, in kJoinedBoxes places
  bool qat = false;                             ///< with fake quantizers, calibrated on some of the images
  bool freeze_batch_norm = false;               ///< its statistics are fixed from the first step on
  QatForward forward = QatForward::simulation;  ///< with frozen BatchNorm
  bool recompute = false;                       ///< with live BatchNorm, as qat.recompute
  OptimizerRecipe optimizer;                    ///< batch size, precision, layout, ...
  QuantRecipe quant;
  CudaRecipe cuda;
  ParallelRecipe parallel;
  bool profile = false;    ///< one step after the warm-up is a ProfiledRange
  double seconds = 3;      ///< of measuring, after warm-up; at least 10 steps are made
  Ranks* ranks = nullptr;  ///< each with a batch of its own or a stage of the network; null: this process alone
};

struct StepTimes {
  std::vector<double> milliseconds;  ///< of each step, from start to start by device events (CPU: the clock), sorted
  size_t peak_bytes = 0;             ///< peak of memory in tensors after warm-up
  size_t used_bytes = 0;  ///< of the GPU at the end, by all processes: with the allocator's cache and engines
  double loss = 0;        ///< mean over all steps
  double exchange_milliseconds = 0;  ///< with ranks: of an exchange of gradients that overlaps with nothing
  double waiting_milliseconds =
      0;                      ///< with ranks: of a step, waiting for exchanges that the backward pass did not hide
  size_t gradient_bytes = 0;  ///< that an exchange sums
};

/// Times the step of train_phase(). With ranks all of them call it with equal arguments and get their own times. Throws
/// Error(usage) where that device cannot be used, Error(promise) if the loss is not finite: times on NaN mean nothing.
StepTimes time_training_step(const StepBench& bench);

}  // namespace octet
