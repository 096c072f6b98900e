// SPDX-License-Identifier: Apache-2.0
// Convolutions whose input is made again in the backward pass: the same gradients, from memory that was free between.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "src/train/model/operators.h"
#include "tests/train/networks.h"

namespace octet {
namespace {

struct Convolved {
  at::Tensor leaf, weight, x, y;
};

Convolved convolved() {
  at::manual_seed(4);
  Convolved c{at::randn({2, 8, 5, 5}).set_requires_grad(true), at::randn({6, 8, 3, 3}).set_requires_grad(true), {}, {}};
  c.x = c.leaf * 2;
  c.y = at::conv2d(c.x, c.weight, {}, 1, 1);
  return c;
}

TEST(MadeAgain, GivesTheSameGradientsAndFreesTheInput) {
  Convolved want = convolved(), got = convolved();
  want.y.square().sum().backward();
  int calls = 0;
  const at::Tensor leaf = got.leaf.detach();
  ASSERT_TRUE(make_input_again(got.y, got.x, [&] {
    ++calls;
    return leaf * 2;
  }));
  const c10::weak_intrusive_ptr<c10::StorageImpl> memory(got.x.storage().getWeakStorageImpl());
  got.x.reset();
  EXPECT_TRUE(memory.expired());
  got.y.square().sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(at::equal(got.leaf.grad(), want.leaf.grad()));
  EXPECT_TRUE(at::equal(got.weight.grad(), want.weight.grad()));
}

TEST(MadeAgain, RefusesWhatNoConvolutionHasMultiplied) {
  const Convolved c = convolved();
  const auto again = [] { return at::Tensor(); };
  EXPECT_FALSE(make_input_again(c.x, c.leaf, again));
  EXPECT_FALSE(make_input_again(c.y, c.leaf, again));
  EXPECT_FALSE(make_input_again(c.y.detach(), c.x, again));
  c.y.sum().backward();  // keeps what it needs
  EXPECT_TRUE(c.leaf.grad().defined());
}

/// ResNet-8 has four after fuse: the image and what each of three blocks has between its convolutions.
TEST(MadeAgain, NeedsAConvolutionThatReadsAloneWithoutAFrame) {
  Graph graph = fuse(test::resnet8());
  const auto count = [&] {
    const std::vector<bool> can = can_be_made_again(graph);
    return std::count(can.begin(), can.end(), true);
  };
  EXPECT_EQ(count(), 4);
  int first = 1;
  while (!can_be_made_again(graph)[first]) ++first;
  for (Node& node : graph.nodes)
    if (node.op == Op::conv2d && node.inputs[0] == first) node.window.pad.bottom += 1;
  EXPECT_EQ(count(), 3);
  EXPECT_FALSE(can_be_made_again(graph)[first]);
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n)
    if (can_be_made_again(graph)[n]) graph.outputs.push_back(n);
  EXPECT_EQ(count(), 0);
}

}  // namespace
}  // namespace octet
