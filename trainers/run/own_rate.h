// SPDX-License-Identifier: Apache-2.0
// The learning rate of a float phase whose recipe sets none: one that suits most networks, and a lower one, from the
// same beginning, where it ruins the training.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>

#include "src/eval/evaluate.h"
#include "src/recipe/recipe.h"
#include "src/recipe/run.h"
#include "trainers/loop/train.h"

namespace octet {

/// Returns train.learning_rate or, where the recipe sets none, the peak rate that training begins with: 0.1 with SGD,
/// for a detector 0.01, and 0.001 with AdamW.
double first_float_rate(const Recipe& recipe);

/// Returns the rate with which a run of that directory begins or goes on to train its float network:
/// first_float_rate(), or the lower one that the directory keeps. open_run() reads it; from then on it is
/// Run::float_rate, which all processes of a run change alike.
double float_rate(const Recipe& recipe, const RunDirectory& directory);
void keep_float_rate(const RunDirectory& directory, double rate);

/// Returns the rate to begin again with where `rate` ruins the network, about a third of it; empty where that would be
/// less than a hundredth of the first.
std::optional<double> lower_rate(const Recipe& recipe, double rate);

/// Returns recipe.train with that rate and, where its schedule has no warm-up, one of an epoch, or of a quarter of a
/// short phase.
OptimizerRecipe with_own_rate(const Recipe& recipe, double rate);

/// Returns why the first epoch's loss shows that the training is ruined, or "". It is above that of the phase's first
/// step and, for a classifier, above ln(2 classes), where the right class gets half of what chance gives it; for a
/// detector it is above twice that of the first step. An epoch whose first step is not known (EpochResult::first_loss)
/// is not judged.
std::string ruin(const EpochResult& epoch, const Task& task);

/// Ends a float phase after an epoch that ruin() names.
class Ruined : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace octet
