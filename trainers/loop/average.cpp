#include "trainers/loop/average.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sub.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <exception>
#include <vector>

namespace octet {

WeightAverage::WeightAverage(const Weights& weights, double decay) : weights_(weights), decay_(decay) {
  for (const auto& [name, tensor] : weights) average_[name] = tensor.detach().clone();
}

double WeightAverage::rate(long t) const {
  return 1.0 - std::min(decay_, (1.0 + static_cast<double>(t)) / (10.0 + static_cast<double>(t)));
}

void WeightAverage::update(const at::Tensor& rate) {
  c10::NoGradGuard no_grad;
  std::vector<at::Tensor> averages, weights;
  for (auto& [name, average] : average_) {
    averages.push_back(average);
    weights.push_back(weights_.at(name));
  }
  std::vector<at::Tensor> way = at::_foreach_sub(weights, averages);
  at::_foreach_mul_(way, rate);
  at::_foreach_add_(averages, way);
}

void WeightAverage::apply() {
  c10::NoGradGuard no_grad;
  for (auto& [name, average] : average_) weights_.at(name).copy_(average);
}

void WeightAverage::while_in_place(const std::function<void()>& body) {
  exchange();
  try {
    body();
  } catch (...) {
    try {
      exchange();
    } catch (const std::exception&) {  // what failed in `body` is on its way to the user
    }
    throw;
  }
  exchange();
}

void WeightAverage::exchange() {
  c10::NoGradGuard no_grad;
  for (auto& [name, average] : average_) {
    at::Tensor& weight = weights_.at(name);
    const at::Tensor held = weight.detach().clone();
    weight.copy_(average);
    average.copy_(held);
  }
}

}  // namespace octet
