// The visible training loops. One loop serves the float and the QAT phase: what differs is the forward function.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/data/loader.h"
#include "src/model/model.h"
#include "src/qat/quantized_model.h"
#include "src/recipe/recipe.h"

namespace octet {

/// Data of a run: training, calibration and validation are three separate index lists; calibration is part of the
/// training set.
struct RunData {
  const Dataset* train_set = nullptr;
  const Dataset* validation_set = nullptr;
  std::vector<size_t> train, calibration, validation;
  Transform train_transform, evaluation_transform;
  int workers = 2;
};

struct EpochResult {
  int epoch = 0;
  double train_loss = 0, train_top1 = 0, learning_rate = 0, images_per_second = 0, data_wait_share = 0, seconds = 0;
};

/// A phase ("float" or "qat"): trains weights in place, from `checkpoint` if that file exists and `resume` is set.
struct Phase {
  std::string name;
  const OptimizerRecipe* recipe = nullptr;
  const Graph* graph = nullptr;  ///< for parameter kinds (no weight decay on BatchNorm and biases)
  Weights* weights = nullptr;
  QuantizedModel* quantized = nullptr;                     ///< null in the float phase
  double freeze_observers = 1.0, freeze_batch_norm = 1.0;  ///< QAT: after this share of the steps
  uint64_t seed = 0;
  std::vector<float> mean, std;
  std::string checkpoint;  ///< state file, written atomically after each epoch and on Ctrl-C
  bool resume = false;
  std::function<void(const EpochResult&)> epoch_done;  ///< validation and metrics
};

/// Runs the phase to its end. Throws Error(interrupted) after saving; Error(promise) with step and first layer on NaN.
/// With EMA on, the averaged weights are in *weights at the end.
void train_phase(const Phase& phase, const RunData& data);

}  // namespace octet
