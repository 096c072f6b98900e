// SPDX-License-Identifier: Apache-2.0
// What evaluate() collects over the images of a set: one scorer for each kind of task.
#pragma once

#include <memory>
#include <string>

#include "src/eval/evaluate.h"

namespace octet {

class Scorer {
 public:
  virtual ~Scorer() = default;
  /// Takes in the network's outputs for a batch of the set, float32 as task.outputs() orders them.
  virtual void add(const Batch& batch, const BatchOutputs& outputs) = 0;
  virtual std::string so_far() const = 0;  ///< "top-1 91.25 %", for the progress bar
  /// Replaces what this process took in by what all took in, in the order of the set, so that sums have the bits that
  /// one process gives.
  virtual void take_all(const Sharing& sharing, int batch_size) = 0;
  /// Fills in the scores of the result, and what they are made of.
  virtual void finish(Evaluation& result) = 0;
};

/// Returns the scorer of a task over that set.
std::unique_ptr<Scorer> make_scorer(const Task& task, const EvaluationSet& set);

}  // namespace octet
