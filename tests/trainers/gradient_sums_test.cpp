// SPDX-License-Identifier: Apache-2.0
// What passes over a batch's parts leave is what autograd adds up by itself, bit for bit.
#include "trainers/loop/gradients.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace octet {
namespace {

struct Network {
  Network() {
    at::manual_seed(3);
    for (at::Tensor* leaf : {&weight, &bias, &unused}) *leaf = at::randn({4, 3}).set_requires_grad(true);
  }
  std::vector<at::Tensor> parameters() const { return {weight, bias, unused}; }
  void backward(const at::Tensor& x) const { (at::matmul(x, weight) + bias).square().sum().backward(); }
  at::Tensor weight, bias, unused;
};

TEST(GradientSums, AreAutogradsOwn) {
  const Network added, taken;
  GradientSums sums(taken.parameters());
  at::manual_seed(5);
  for (int pass = 0; pass < 4; ++pass) {
    const at::Tensor x = at::randn({4, 4});
    added.backward(x);
    if (pass == 3) sums.give_back();  // the last pass adds to what is there
    taken.backward(x);
    if (pass == 3) break;
    sums.take();
    EXPECT_FALSE(taken.weight.grad().defined()) << pass;
  }
  EXPECT_TRUE(at::equal(added.weight.grad(), taken.weight.grad()));
  EXPECT_TRUE(at::equal(added.bias.grad(), taken.bias.grad()));
  EXPECT_FALSE(taken.unused.grad().defined());
}

TEST(GradientSums, BeginAnewOnceGivenBack) {
  const Network network;
  GradientSums sums(network.parameters());
  const at::Tensor x = at::ones({4, 4});
  for (int step = 0; step < 2; ++step) {
    network.backward(x);
    const at::Tensor once = network.weight.grad().clone();
    sums.take();
    network.backward(x);
    sums.take();
    sums.give_back();
    EXPECT_TRUE(at::equal(network.weight.grad(), once + once)) << step;
    for (const at::Tensor& parameter : network.parameters()) at::Tensor(parameter).mutable_grad() = at::Tensor();
  }
}

}  // namespace
}  // namespace octet
