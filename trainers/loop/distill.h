// Distillation (Hinton et al., "Distilling the Knowledge in a Neural Network", arXiv 1503.02531): in QAT the float
// network, whose weights stay, says how probable every class is, not only which one is right.
#pragma once

#include "src/model/model.h"

namespace octet {

struct Teacher {
  Graph graph;
  Weights weights;  ///< of its own, where the student's are; no gradients
  double weight = 0, temperature = 1;

  /// (1 - weight) loss + weight T^2 KL(teacher's probabilities || student's), both softmax(logits / T), mean over the
  /// batch: T^2 keeps the gradient's size. images: as the student sees them. Under autocast the logits come in its
  /// type.
  at::Tensor join(const at::Tensor& loss, const at::Tensor& logits, const at::Tensor& images) const;
};

/// A copy of `weights`.
Teacher make_teacher(const Graph& graph, const Weights& weights, double weight, double temperature);

}  // namespace octet
