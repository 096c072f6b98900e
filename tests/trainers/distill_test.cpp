// SPDX-License-Identifier: Apache-2.0
// Distillation: the loss and its gradient are the formula's, and without it a run has the bits it had.
#include "trainers/loop/step.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/train/repair/learned_codes.h"
#include "tests/trainers/training.h"

namespace octet {
namespace {

using testing_trainers::expect_same_bits;
using testing_trainers::Folder;
using testing_trainers::short_recipe;
using testing_trainers::Training;

std::vector<double> softmax(const at::Tensor& row, double temperature) {
  std::vector<double> p;
  double sum = 0;
  for (int64_t c = 0; c < row.numel(); ++c) p.push_back(std::exp(row[c].item<double>() / temperature));
  for (const double e : p) sum += e;
  for (double& e : p) e /= sum;
  return p;
}

TEST(Distill, LossAndGradientAreTheFormulas) {
  at::manual_seed(1);
  for (const double temperature : {1.0, 2.5, 8.0}) {
    const at::Tensor taught = at::randn({5, 7}).mul_(3);
    const at::Tensor logits = at::randn({5, 7}).mul_(3).requires_grad_(true);
    const at::Tensor loss = distillation_loss(logits, taught, temperature);
    loss.backward();
    double expected = 0;
    for (int64_t n = 0; n < 5; ++n) {
      const std::vector<double> p = softmax(taught[n], temperature), q = softmax(logits[n].detach(), temperature);
      for (int64_t c = 0; c < 7; ++c) {
        expected += p[c] * std::log(p[c] / q[c]) * temperature * temperature / 5;
        EXPECT_NEAR(logits.grad()[n][c].item<double>(), temperature * (q[c] - p[c]) / 5, 1e-5);
      }
    }
    EXPECT_NEAR(loss.item<double>(), expected, 1e-4 * expected);
  }
}

/// For pixels, whose logits lie a class apart, the loss is the mean over pixels.
TEST(Distill, OfPixelsIsTheMeanOfPixels) {
  at::manual_seed(3);
  const Task task{Labels::pixels, {5, 2, 3}};
  const at::Tensor taught = at::randn({4, 5 * 2 * 3}).mul_(3), logits = at::randn({4, 5 * 2 * 3}).mul_(3);
  const auto pixels = [](const at::Tensor& of) { return of.view({4, 5, 6}).transpose(1, 2).reshape({24, 5}); };
  EXPECT_NEAR(make_objective(task, at::kCPU)->distill(logits, taught, 2, {}).item<double>(),
              distillation_loss(pixels(logits), pixels(taught), 2).item<double>(), 1e-5);
}

TEST(Distill, JoinsBothLossesAndTheTeacherStays) {
  const Graph graph = fuse(testing_trainers::tiny_graph());
  const Weights weights = initial_weights(graph, 7);
  const Teacher teacher = make_teacher(graph, weights, 0.3, 4);
  at::manual_seed(2);
  const at::Tensor images = at::randn({6, 1, 8, 8}), labels = at::tensor({0, 1, 2, 3, 0, 1}, at::kLong);
  const at::Tensor logits = at::randn({6, 4}).requires_grad_(true);
  const at::Tensor hard = at::cross_entropy_loss(logits, labels);
  const at::Tensor joined = teacher.join(hard, logits, images, class_objective(), {});
  const at::Tensor taught = walk(graph, weights, images, {}).detach();
  EXPECT_NEAR(joined.item<double>(),
              0.7 * hard.item<double>() + 0.3 * distillation_loss(logits, taught, 4).item<double>(), 1e-6);
  joined.backward();
  const at::Tensor detached = logits.detach();
  const at::Tensor by_hand = (detached.softmax(1) - at::one_hot(labels, 4)) * (0.7 / 6) +
                             ((detached / 4).softmax(1) - (taught / 4).softmax(1)) * (0.3 * 4 / 6);
  EXPECT_TRUE(logits.grad().allclose(by_hand, 1e-5, 1e-7));
  for (const auto& [name, tensor] : teacher.weights) {
    EXPECT_FALSE(tensor.requires_grad()) << name;
    EXPECT_TRUE(tensor.equal(weights.at(name))) << name;  // BatchNorm's statistics, too
    EXPECT_NE(tensor.const_data_ptr(), weights.at(name).const_data_ptr()) << name;
  }
}

/// QAT of three epochs; `weight` < 0: without a teacher.
std::unique_ptr<Training> trained(const Folder& folder, double weight) {
  auto training = std::make_unique<Training>(short_recipe(), folder.path() + "/state" + std::to_string(weight), true);
  const Teacher teacher = make_teacher(fuse(training->graph), initial_weights(training->graph, 9), weight, 2);
  if (weight >= 0) training->phase.teacher = &teacher;
  training->run();
  training->phase.teacher = nullptr;
  return training;
}

TEST(Distill, ATeacherOfNoWeightChangesNoBitAndOneOfWeightDoes) {
  const Folder folder("distill");
  const auto without = trained(folder, -1), with_none = trained(folder, 0), with = trained(folder, 0.9);
  expect_same_bits(without->weights, with_none->weights);
  EXPECT_FALSE(without->weights.at("fc.weight").equal(with->weights.at("fc.weight")));
  // What the epochs say of cross-entropy stays what validation measures.
  EXPECT_EQ(without->epochs[0].train_cross_entropy, with_none->epochs[0].train_cross_entropy);
  EXPECT_NE(with->epochs[2].train_cross_entropy, with->epochs[2].train_loss);
}

}  // namespace
}  // namespace octet
