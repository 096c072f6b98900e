// SPDX-License-Identifier: Apache-2.0
// What octet chooses, notes and warns about in the settings of a training. No LibTorch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/base/names.h"
#include "src/net/graph.h"
#include "src/recipe/recipe.h"
#include "src/report/report.h"

namespace octet {

struct QatRate {
  double rate = 0;
  std::string why;  ///< for the user; "": the recipe set the rate
};

/// Returns qat.learning_rate or, if that is 0, a rate that suits `graph`, the float network. QAT starts from trained
/// weights, which the rate of a training from scratch would ruin; without BatchNorm the size of a step is not
/// normalized away, so the rate must be smaller. float_rate: that of the float phase (trainers/run/own_rate.h).
QatRate qat_rate(const Recipe& recipe, const Graph& graph, double float_rate);

/// Returns that a recipe trains nothing, and the keys that change it; "" if it trains.
std::string untrained_note(const Recipe& recipe);

/// Returns that a classifier is right no more often than by chance, so that what int8 costs cannot be seen, and the
/// keys that may be missing; "" if it knows more.
std::string chance_note(const Evaluation& network, bool was_trained);

/// Returns a warning about the last of `epochs` (the lines of metrics.jsonl), or "". It warns if the training loss
/// (cross-entropy) exceeds twice the smallest of the phase's earlier epochs by more than 0.5, unless the epoch before
/// was as bad. The first epoch is compared with `first`, the loss of the phase's first step. The training goes on: the
/// warning tells the user before the accuracy does.
std::string runaway_loss(const std::vector<EpochMetrics>& epochs, const Recipe& recipe,
                         std::optional<double> first = std::nullopt);

/// Returns how QAT in a low precision differs from the deployed network; "" for fp32. The figures are those of
/// tests/qat/low_precision_test.cpp.
std::string qat_precision_note(Precision precision);

/// Returns what fp16 costs on a CPU, and the cure; "" for other types. phase: "train" or "qat", as in the recipe.
std::string cpu_precision_note(const std::string& phase, Precision precision);

}  // namespace octet
