// SPDX-License-Identifier: Apache-2.0
// What the training phases of a run have in common: float phase and float control (phases.cpp), QAT (qat_phase.cpp).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/engine/engine.h"
#include "src/eval/evaluate.h"
#include "src/net/graph.h"
#include "trainers/loop/train.h"
#include "trainers/run/run.h"

namespace octet {

/// Returns what all phases of a run have in common. `recipe`, `graph` and `weights` must outlive it.
Phase phase_of(const Run& run, const char* name, const OptimizerRecipe& recipe, const Graph& graph, Weights& weights);

/// Returns the scores of a network on the validation images.
Evaluation validated(const Run& run, const std::string& name, Program& network);

/// Makes the network that is validated.
using MakeProgram = std::function<std::unique_ptr<Program>()>;

/// Validates the network if it is its turn, prints a line and records the epoch in metrics.jsonl, on the page and for
/// TensorBoard, there with the ranges that were validated. Then it says `warning` or, if that is empty, that the loss
/// runs away. Throws NotFinite if the validation loss is not finite.
void finish_epoch(const Run& run, const Phase& phase, const EpochResult& result, const MakeProgram& network,
                  const std::string& warning = "");

/// Calls `train`. Returns "" when it is done, or why it was ruined in its beginning: what Ruined says, or Diverged in
/// an epoch up to `beginning`, from 0. A loss that is not finite later may have other causes, and good epochs are lost
/// then, so it ends the training, as any does that may not begin again.
std::string ruined_in(const std::function<void()>& train, int beginning, bool may_begin_again);

/// Returns "qat.learning_rate: 0.01 ruins the network: <why>; its training begins again at 0.003".
std::string lower_rate_note(const std::string& section, double rate, const std::string& why, double lower);

/// Gives up what a phase has trained: its weights are as in the beginning, and it has no state. To be called before a
/// lower rate is kept, since a state must be of the rate that is there.
void give_up(const Run& run, Phase& phase, const Weights& beginning);

/// Says what training at that precision costs on a CPU, if it is one.
void say_what_it_costs(const Run& run, const std::string& phase, Precision precision);

}  // namespace octet
