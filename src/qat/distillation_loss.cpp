#include "src/qat/distillation_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/log_softmax.h>

namespace octet {

at::Tensor distillation_loss(const at::Tensor& logits, const at::Tensor& taught, double temperature) {
  const at::Tensor student = at::log_softmax(logits.to(at::kFloat) / temperature, 1);
  const at::Tensor teacher = at::log_softmax(taught.to(at::kFloat) / temperature, 1);
  return (teacher.exp() * (teacher - student)).sum(1).mean() * (temperature * temperature);
}

}  // namespace octet
