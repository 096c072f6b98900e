#include "trainers/loop/gradient_sums.h"

#include <ATen/ops/_foreach_add.h>
#include <c10/core/GradMode.h>

#include <utility>

namespace octet {

GradientSums::GradientSums(std::vector<at::Tensor> parameters)
    : parameters_(std::move(parameters)), sums_(parameters_.size()) {}

void GradientSums::take() {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> sums, gradients;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor gradient = std::exchange(at::Tensor(parameters_[i]).mutable_grad(), {});
    if (!gradient.defined()) continue;
    if (!sums_[i].defined()) {
      sums_[i] = gradient;
    } else {
      sums.push_back(sums_[i]);
      gradients.push_back(gradient);
    }
  }
  if (!sums.empty()) at::_foreach_add_(sums, gradients);
  added_ = std::move(gradients);
}

void GradientSums::give_back() {
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (sums_[i].defined()) at::Tensor(parameters_[i]).mutable_grad() = std::exchange(sums_[i], {});
  added_.clear();
}

}  // namespace octet
