// Gradients of several backward passes, added up in a launch a pass: autograd itself takes one for each parameter.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace octet {

class GradientSums {
 public:
  explicit GradientSums(std::vector<at::Tensor> parameters);

  void take();       ///< after a backward pass: its gradients from the parameters, which have none then
  void give_back();  ///< the sums so far to the parameters: a further backward pass adds to them; begins anew

 private:
  const std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> sums_;   // by parameter; undefined: no gradient yet
  std::vector<at::Tensor> added_;  // lately: autograd may have made them in another lane, which would write over them
};

}  // namespace octet
