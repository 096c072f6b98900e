// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/advice.h"

#include <gtest/gtest.h>

#include "src/net/zoo.h"
#include "tests/trainers/calibrated_run.h"
#include "trainers/run/records.h"

namespace octet {
namespace {

using testing_trainers::CalibratedRun, testing_trainers::Folder, testing_trainers::tiny_recipe;

Graph resnet20(bool folded) {
  ModelSpec spec;
  spec.name = "resnet20";
  spec.folded = folded;
  return build_model(spec);
}

TEST(QatRate, SuitsTheNetworkWhereTheRecipeSetsNone) {
  Recipe recipe;
  EXPECT_EQ(recipe.qat.learning_rate, 0);
  const double usual = qat_rate(recipe, resnet20(false), recipe.train.learning_rate).rate,
               folded = qat_rate(recipe, resnet20(true), recipe.train.learning_rate).rate;
  EXPECT_EQ(usual, 0.005);
  EXPECT_EQ(folded, 0.0005);
  EXPECT_NE(qat_rate(recipe, resnet20(true), recipe.train.learning_rate).why.find("without BatchNorm"),
            std::string::npos);
  recipe.quant.activation_bits = 4;
  EXPECT_EQ(qat_rate(recipe, resnet20(false), recipe.train.learning_rate).rate, 0.01);
  EXPECT_EQ(qat_rate(recipe, resnet20(true), recipe.train.learning_rate).rate, 0.0005);
  recipe.qat.optimizer = OptimizerKind::adamw;
  EXPECT_EQ(qat_rate(recipe, resnet20(false), recipe.train.learning_rate).rate, 1e-4);
  EXPECT_EQ(qat_rate(recipe, resnet20(true), recipe.train.learning_rate).rate, 1e-5);
}

TEST(QatRate, IsATenthOfTheFloatPhasesAtMost) {
  Recipe recipe;
  recipe.train.epochs = 1;
  recipe.train.learning_rate = 0.02;
  EXPECT_DOUBLE_EQ(qat_rate(recipe, resnet20(false), recipe.train.learning_rate).rate, 0.002);
  EXPECT_EQ(qat_rate(recipe, resnet20(false), recipe.train.learning_rate).why, "a tenth of train.learning_rate");
  EXPECT_EQ(qat_rate(recipe, resnet20(true), recipe.train.learning_rate).rate, 0.0005);
  recipe.train.optimizer = OptimizerKind::adamw;  // whose rates are others
  EXPECT_EQ(qat_rate(recipe, resnet20(false), recipe.train.learning_rate).rate, 0.005);
  recipe.train.optimizer = OptimizerKind::sgd;
  recipe.train.epochs = 0;
  EXPECT_EQ(qat_rate(recipe, resnet20(false), recipe.train.learning_rate).rate, 0.005);
}

TEST(QatRate, ThatOfTheRecipeStays) {
  Recipe recipe;
  recipe.qat.learning_rate = 0.1;
  EXPECT_EQ(qat_rate(recipe, resnet20(true), recipe.train.learning_rate).rate, 0.1);
  EXPECT_EQ(qat_rate(recipe, resnet20(true), recipe.train.learning_rate).why, "");
}

TEST(UntrainedNote, NamesTheKeysOfARecipeThatTrainsNothing) {
  Recipe recipe;
  EXPECT_NE(untrained_note(recipe).find("qat.epochs"), std::string::npos);
  recipe.qat.epochs = 1;
  EXPECT_EQ(untrained_note(recipe), "");
  recipe.qat.epochs = 0;
  recipe.train.epochs = 1;
  EXPECT_EQ(untrained_note(recipe), "");
}

TEST(ChanceNote, IsOfAClassifierThatKnowsNothing) {
  Evaluation network{.name = "float", .task = {Labels::image, {10, 1, 1}}, .images = 1000};
  network.top1 = 0.118;  // of a hundred such networks that guess, two are better
  const std::string untrained = chance_note(network, false), trained = chance_note(network, true);
  EXPECT_EQ(untrained.rfind("float is right on 11.80 % of 1000 images, no more than by chance with 10 ", 0), 0U)
      << untrained;
  EXPECT_NE(untrained.find("train.epochs trains it"), std::string::npos) << untrained;
  EXPECT_NE(trained.find("another train.learning_rate may help"), std::string::npos) << trained;
  network.top1 = 0.120;
  EXPECT_EQ(chance_note(network, false), "");
  network.top1 = 0.118;
  network.task.labels = Labels::boxes;
  EXPECT_EQ(chance_note(network, false), "");
}

TEST(QatRate, IsTrainedWithAndSaid) {
  const Folder folder("qat_rate");
  Recipe recipe = tiny_recipe();
  recipe.qat.learning_rate = 0;
  recipe.qat.schedule = ScheduleKind::constant;
  CalibratedRun c(recipe, folder.path());
  testing::internal::CaptureStderr();
  train_qat(c.run, c.model, false);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("qat.learning_rate: 0.005, "), std::string::npos) << said;
  EXPECT_EQ(read_metrics(c.run.directory.metrics()).back().learning_rate, 0.005);
}

}  // namespace
}  // namespace octet
