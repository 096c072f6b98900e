#include "trainers/loop/distill.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>

namespace octet {

Teacher make_teacher(const Graph& graph, const Weights& weights, double weight, double temperature) {
  Teacher teacher{.graph = graph, .weights = weights, .weight = weight, .temperature = temperature};
  for (auto& [name, tensor] : teacher.weights) tensor = tensor.detach().clone();
  return teacher;
}

at::Tensor distillation_loss(const at::Tensor& logits, const at::Tensor& taught, double temperature) {
  const at::Tensor student = at::log_softmax(logits.to(at::kFloat) / temperature, 1);
  const at::Tensor teacher = at::log_softmax(taught.to(at::kFloat) / temperature, 1);
  return (teacher.exp() * (teacher - student)).sum(1).mean() * (temperature * temperature);
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
