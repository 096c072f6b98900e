// SPDX-License-Identifier: Apache-2.0
// The loss against its formula written out, and against LibTorch's for images; its gradient by the formula's.
#include "trainers/loop/step.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "src/data/labels.h"
#include "src/data/loader.h"

namespace octet {
namespace {

constexpr int kN = 2, kClasses = 3, kH = 4, kW = 5;

at::Tensor logits_of_pixels() {
  at::manual_seed(1);
  return at::randn({kN, kClasses * kH * kW}, at::kDouble).to(at::kFloat).requires_grad_();
}

/// Some pixels have no label.
at::Tensor labels_of_pixels() {
  at::manual_seed(2);
  at::Tensor labels = at::randint(kClasses, {kN, kH, kW}, at::kLong);
  labels[0][1][2].fill_(kNoLabel);
  labels[1][3][4].fill_(kNoLabel);
  labels[1][0].fill_(kNoLabel);
  return labels;
}

/// Mean over labelled pixels of -sum_c target_c log softmax_c, and its gradient (softmax_c - target_c) / count; double.
struct ByFormula {
  double loss = 0, count = 0;
  std::vector<double> gradient = std::vector<double>(kN * kClasses * kH * kW);
};

ByFormula by_formula(const at::Tensor& logits, const at::Tensor& labels, double smoothing) {
  ByFormula result;
  const at::Tensor x = logits.detach().contiguous();
  const float* values = x.const_data_ptr<float>();
  const int64_t* wanted = labels.const_data_ptr<int64_t>();
  for (int n = 0; n < kN; ++n) {
    for (int p = 0; p < kH * kW; ++p) {
      const int64_t label = wanted[n * kH * kW + p];
      if (label == kNoLabel) continue;
      ++result.count;
      const auto at = [&](int c) { return (n * kClasses + c) * kH * kW + p; };
      double sum = 0;
      for (int c = 0; c < kClasses; ++c) sum += std::exp(static_cast<double>(values[at(c)]));
      for (int c = 0; c < kClasses; ++c) {
        const double share = std::exp(static_cast<double>(values[at(c)])) / sum;
        const double target = (c == label ? 1 - smoothing : 0) + smoothing / kClasses;
        result.loss -= target * std::log(share);
        result.gradient[at(c)] = share - target;
      }
    }
  }
  result.loss /= result.count;
  for (double& g : result.gradient) g /= result.count;
  return result;
}

TEST(Loss, OfPixelsAndItsGradientAreTheFormula) {
  for (const double smoothing : {0.0, 0.1}) {
    const at::Tensor logits = logits_of_pixels(), labels = labels_of_pixels();
    const ByFormula expected = by_formula(logits, labels, smoothing);
    ASSERT_EQ(expected.count, kN * kH * kW - 2 - kW);
    const at::Tensor loss = mean_loss(logits, labels, smoothing);
    loss.backward();
    EXPECT_NEAR(loss.item<double>(), expected.loss, 1e-6);
    const at::Tensor gradient = logits.grad().contiguous();
    for (size_t i = 0; i < expected.gradient.size(); ++i)
      EXPECT_NEAR(gradient.const_data_ptr<float>()[i], expected.gradient[i], 1e-7) << i;
  }
}

TEST(Loss, OfPixelsIsLibTorchsWithoutSmoothing) {
  const at::Tensor logits = logits_of_pixels(), labels = labels_of_pixels();
  const at::Tensor theirs = at::cross_entropy_loss(logits.reshape({kN, kClasses, kH, kW}), labels);
  EXPECT_NEAR(mean_loss(logits, labels, 0).item<double>(), theirs.item<double>(), 1e-6);
}

/// The loss of a mixed image is that of its two classes, weighted; so is its gradient, and what is right.
TEST(Loss, OfMixedImagesIsTheWeightedSum) {
  at::manual_seed(3);
  const at::Tensor logits = at::randn({4, 5}), own = at::tensor({1, 4, 0, 2}, at::kLong),
                   other = at::tensor({3, 4, 1, 0}, at::kLong);
  const double weights[] = {0.25, 0.5, 0, 1};
  const at::Tensor labels = at::zeros({4, kMixedValues}, at::kLong);
  labels.select(1, 0).copy_(own);
  labels.select(1, 1).copy_(other);
  for (int i = 0; i < 4; ++i) labels[i][2] = static_cast<int64_t>(weights[i] * kMixedUnits);
  const at::Tensor weight = at::tensor({0.25f, 0.5f, 0.0f, 1.0f});
  for (const double smoothing : {0.0, 0.1}) {
    const at::Tensor x = logits.clone().requires_grad_(), y = logits.clone().requires_grad_();
    const auto each = [&](const at::Tensor& classes) {
      return at::cross_entropy_loss(y, classes, {}, at::Reduction::None, -100, smoothing);
    };
    const at::Tensor wanted = (each(own) * (1 - weight) + each(other) * weight).mean();
    wanted.backward();
    const at::Tensor loss = mean_loss(x, labels, smoothing);
    loss.backward();
    EXPECT_NEAR(loss.item<float>(), wanted.item<float>(), 1e-6);
    EXPECT_LT((x.grad() - y.grad()).abs().max().item<float>(), 1e-7);
  }
  at::Tensor sure = at::zeros({4, 5});
  sure[0][3] = 1;  // the other, with a quarter
  sure[1][4] = 1;  // both
  sure[2][1] = 1;  // the other, with nothing
  sure[3][2] = 1;  // its own, with nothing
  EXPECT_NEAR(correct_images(sure, labels).item<double>(), 1.25, 1e-6);
}

TEST(Loss, OfImagesIsLibTorchsBitForBit) {
  at::manual_seed(3);
  const at::Tensor logits = at::randn({8, 5}), labels = at::randint(5, {8}, at::kLong);
  for (const double smoothing : {0.0, 0.1}) {
    const at::Tensor theirs = at::cross_entropy_loss(logits, labels, {}, at::Reduction::Mean, -100, smoothing);
    EXPECT_TRUE(mean_loss(logits, labels, smoothing).equal(theirs));
  }
}

TEST(Loss, NothingLabelledIsNothingLost) {
  const at::Tensor logits = logits_of_pixels(), labels = labels_of_pixels().fill_(kNoLabel);
  const at::Tensor loss = mean_loss(logits, labels, 0.1);
  loss.backward();
  EXPECT_EQ(loss.item<double>(), 0);
  EXPECT_EQ(logits.grad().abs().max().item<double>(), 0);
  EXPECT_EQ(correct_images(logits.detach(), labels).item<double>(), 0);
}

/// Three sums are divided by their number; of two processes with the same pixels the mean is that of one.
TEST(Loss, LabelledPixelsAreExchangedOnceAStep) {
  const at::Tensor logits = logits_of_pixels(), labels = labels_of_pixels();
  int exchanges = 0;
  const GatherShares gather = [&](const at::Tensor& mine) {
    ++exchanges;
    return at::stack({mine, mine});
  };
  const Objective::Judged one = class_objective().judge(logits, labels, 0.1, {});
  const Objective::Judged two = class_objective().judge(logits, labels, 0.1, {.shares = &gather});
  EXPECT_EQ(exchanges, 1);
  EXPECT_EQ(two.loss.item<double>(), one.loss.item<double>());
  EXPECT_EQ(two.plain.item<double>(), one.plain.item<double>());
  EXPECT_EQ(two.right.item<double>(), one.right.item<double>());
}

TEST(Loss, RightPixelsArePartsOfImages) {
  // One image of four pixels, class 1 everywhere: predicted 1, 0, 1, 1; the last has no label.
  const at::Tensor logits = at::tensor({0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0}).reshape({1, 8});
  at::Tensor labels = at::tensor({1, 1, 1, -100}, at::kLong).reshape({1, 2, 2});
  EXPECT_DOUBLE_EQ(correct_images(logits, labels).item<double>(), 2.0 / 3);
  const at::Tensor images = at::tensor({0.0, 1.0, 1.0, 0.0}).reshape({2, 2});
  EXPECT_DOUBLE_EQ(correct_images(images, at::tensor({1, 1}, at::kLong)).item<double>(), 1);
}

}  // namespace
}  // namespace octet
