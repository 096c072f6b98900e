// SPDX-License-Identifier: Apache-2.0
// What the loop reports of an epoch, against the same batches walked by hand.
#include <ATen/ops/cross_entropy_loss.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tests/trainers/training.h"
#include "trainers/loop/batches.h"
#include "trainers/loop/optimizer.h"

namespace octet {
namespace {

using testing_trainers::Folder;
using testing_trainers::short_recipe;
using testing_trainers::Training;

constexpr int kSteps = 4;  // of an epoch of short_recipe

TEST(EpochResult, LossAndTop1AreTheMeansOverTheEpochsBatches) {
  OptimizerRecipe recipe = short_recipe();
  recipe.learning_rate = 1e-30;  // the weights stay as they are
  recipe.label_smoothing = 0.1;
  const Folder folder("result");
  Training training(recipe, folder.path() + "/state.safetensors", /*qat=*/false);
  for (Node& node : training.graph.nodes) node.dropout = 0;
  training.run();

  const c10::NoGradGuard no_grad;
  const auto batches = make_batches(training.data, {.batch_size = recipe.batch_size});
  ASSERT_EQ(training.epochs.size(), 3u);
  for (int epoch = 0; epoch < 3; ++epoch) {
    double loss = 0, correct = 0, first = 0;
    batches->begin({step_seed(training.phase.seed, "float", 0, 0), epoch}, 0);
    while (const Batches::Labelled* batch = batches->next()) {
      const at::Tensor logits = walk(training.graph, training.weights, batch->images, {.batch_norm_training = true});
      if (first == 0) first = at::cross_entropy_loss(logits, batch->labels).item<double>();
      if (epoch > 0) first = training.epochs[0].first_loss.value();  // the phase's, not the epoch's
      loss += at::cross_entropy_loss(logits, batch->labels, {}, at::Reduction::Mean, -100, recipe.label_smoothing)
                  .item<double>();
      correct += logits.argmax(1).eq(batch->labels).sum().item<double>();
    }
    EXPECT_NEAR(training.epochs[epoch].first_loss.value(), first, 1e-6);
    EXPECT_NEAR(training.epochs[epoch].train_loss, loss / kSteps, 1e-6);
    EXPECT_EQ(training.epochs[epoch].train_top1, correct / (kSteps * recipe.batch_size));
  }
  EXPECT_NE(training.epochs[0].train_loss, training.epochs[1].train_loss);  // other images are cropped otherwise
}

TEST(EpochResult, LearningRateIsTheLastSteps) {
  const OptimizerRecipe recipe = short_recipe();
  const Folder folder("rate");
  Training training(recipe, folder.path() + "/state.safetensors", /*qat=*/false);
  training.run();
  for (int epoch = 0; epoch < 3; ++epoch) {
    const int last = kSteps * (epoch + 1) - 1;
    EXPECT_DOUBLE_EQ(training.epochs.at(epoch).learning_rate,
                     recipe.learning_rate / 2 * (1 + std::cos(std::numbers::pi * last / (3 * kSteps))));
  }
}

}  // namespace
}  // namespace octet
