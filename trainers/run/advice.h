// SPDX-License-Identifier: Apache-2.0
// What octet chooses, notes and warns about in the settings of a training: the learning rates of the float phase and of
// QAT where the recipe sets none, and what the user should know.
#pragma once

#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/base/names.h"
#include "src/eval/evaluate.h"
#include "src/net/graph.h"
#include "src/recipe/recipe.h"
#include "src/recipe/run.h"
#include "src/report/report.h"
#include "src/train/repair/output_error.h"

namespace octet {

struct EpochResult;  // trainers/loop/train.h

// The learning rate of a float phase whose recipe sets none: one that suits most networks, and a lower one, from the
// same beginning, where it ruins the training.

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

/// Ends a phase after an epoch that ruin() or qat_ruin() names.
class Ruined : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The learning rate of QAT.

struct QatRate {
  double rate = 0;
  std::string why;  ///< for the user; "": the recipe set the rate
};

/// Returns qat.learning_rate or, if that is 0, a rate that suits `graph`, the float network. QAT starts from trained
/// weights, which the rate of a training from scratch would ruin; without BatchNorm the size of a step is not
/// normalized away, so the rate must be smaller. float_rate: that of the float phase.
QatRate qat_rate(const Recipe& recipe, const Graph& graph, double float_rate);

/// Returns the share of qat_rate() with which a run of that directory trains, or goes on: 1, or the lower one that the
/// directory keeps. open_run() reads it; from then on it is Run::qat_share, which all processes of a run change alike.
double qat_share(const Recipe& recipe, const RunDirectory& directory);
void keep_qat_share(const RunDirectory& directory, double share);

/// Returns the share to begin again with where training at `share` is ruined; empty for a rate that the recipe sets,
/// and where it would be less than a tenth.
std::optional<double> lower_share(const Recipe& recipe, double share);

/// Returns the epoch, from 0, with which the beginning of QAT ends: that of its 100th step after the warm-up; the
/// first, where half of the epochs would be over by then. steps: of an epoch.
int qat_beginning(const OptimizerRecipe& recipe, long steps);

/// Returns why QAT of a classifier is ruined, or "". It is judged once, by the epoch with which its beginning ends, if
/// that has the 100th step: the loss is no less than by chance, and of what the float network knows beyond chance it
/// knows less than a tenth. (A loss that has grown is no sign: that of the first step is of a few images, and few bits
/// begin far above chance.) float_network: on the validation images, asked only where it decides.
std::string qat_ruin(const EpochResult& epoch, const OptimizerRecipe& recipe, long steps, const Task& task,
                     const std::function<Evaluation()>& float_network);

// Notes and warnings.

/// Returns that a recipe trains nothing, and the keys that change it; "" if it trains.
std::string untrained_note(const Recipe& recipe);

/// Returns that a classifier is right no more often than by chance, so that what int8 costs cannot be seen, and the
/// keys that may be missing; "" if it knows more.
std::string chance_note(const Evaluation& network, bool was_trained);

/// Returns that an output says nothing on many images (silent_images()), so that what it loses there tells nothing, and
/// which images would tell; "" otherwise. images: how many the outputs were compared on.
std::string silence_note(const std::vector<OutputError>& outputs, size_t images);

/// Returns a warning about the last of `epochs` (the lines of metrics.jsonl), or "". It warns if the training loss
/// (cross-entropy) exceeds twice the smallest of the phase's earlier epochs by more than 0.5, unless the epoch before
/// was as bad. The first epoch is compared with `first`, the loss of the phase's first step. The training goes on: the
/// warning tells the user before the accuracy does. all: how many epochs the phase has; freeze_batch_norm: the share of
/// its steps after which BatchNorm's statistics stay.
std::string runaway_loss(const std::vector<EpochMetrics>& epochs, int all, double freeze_batch_norm,
                         std::optional<double> first = std::nullopt);

/// Returns how QAT in a low precision differs from the deployed network; "" for fp32. The figures are those of
/// tests/train/low_precision_test.cpp.
std::string qat_precision_note(Precision precision);

/// Returns what fp16 costs on a CPU, and the cure; "" for other types. phase: "train" or "qat", as in the recipe.
std::string cpu_precision_note(const std::string& phase, Precision precision);

}  // namespace octet
