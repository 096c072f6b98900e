#include "trainers/loop/distill.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include "src/qat/distillation_loss.h"

namespace octet {

Teacher make_teacher(const Graph& graph, const Weights& weights, double weight, double temperature) {
  Teacher teacher{.graph = graph, .weights = weights, .weight = weight, .temperature = temperature};
  for (auto& [name, tensor] : teacher.weights) tensor = tensor.detach().clone();
  return teacher;
}

at::Tensor Teacher::join(const at::Tensor& loss, const at::Tensor& logits, const at::Tensor& images) const {
  at::Tensor taught;
  {
    const at::NoGradGuard no_grad;
    taught = walk(graph, weights, images, {});
  }
  return loss * (1 - weight) + distillation_loss(logits, taught, temperature) * weight;
}

}  // namespace octet
