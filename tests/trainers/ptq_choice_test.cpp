// SPDX-License-Identifier: Apache-2.0
// octet calibrate's choice: on the validation images alone, and an engine that refuses a scheme loses that result only.
#include "trainers/run/ptq_search.h"

#include <gtest/gtest.h>

#include <string>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "tests/trainers/tiny.h"
#include "trainers/run/measure.h"

namespace octet {
namespace {

using testing_trainers::message_of;
using testing_trainers::tiny_recipe;

class PtqChoiceTest : public testing::Test {
 protected:
  void SetUp() override { set_verbosity(Verbosity::quiet); }
  void TearDown() override { set_verbosity(Verbosity::normal); }

  const octet::Run run = open_run(tiny_recipe(), {});
  const Weights weights = starting_weights(run);
  const CompileInt8 cpu = [](const octet::Run& tried, const Int8Graph& graph) {
    return compile_engine(tried, "cpu", graph);
  };
};

TEST_F(PtqChoiceTest, TheBestOfFifteenOnTheValidationImagesMeetsTheTestImages) {
  const PtqChoice choice = choose_ptq(run, weights, /*all=*/true, cpu);
  ASSERT_EQ(choice.results.size(), 15u);  // three schemes, four methods and auto
  for (const PtqResult& result : choice.results) EXPECT_FALSE(result.better_than(choice.results[choice.chosen]));
  EXPECT_EQ(choice.int8_test.images, 120);
  EXPECT_EQ(choice.graph.accuracies.at("int8_top1"), choice.int8_test.top1);
  // It is the very network: measured alone, with its scheme and calibrator.
  octet::Run alone = run;
  alone.recipe.quant.activation = choice.results[choice.chosen].activation;
  alone.recipe.calibrate.method = choice.results[choice.chosen].method;
  const PtqChoice one = choose_ptq(alone, weights, /*all=*/false, cpu);
  ASSERT_EQ(one.results.size(), 1u);
  EXPECT_EQ(one.results[0].loss, choice.results[choice.chosen].loss);
  EXPECT_EQ(one.int8_test.loss, choice.int8_test.loss);
}

TEST_F(PtqChoiceTest, AllFifteenShareOnePassAndGetWhatEachGetsByItself) {
  set_verbosity(Verbosity::normal);
  testing::internal::CaptureStderr();
  const PtqChoice all = choose_ptq(run, weights, /*all=*/true, cpu);
  const std::string said = testing::internal::GetCapturedStderr();
  const size_t first = said.find("calibrate: ");
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("calibrate: ", first + 1), std::string::npos) << said;
  set_verbosity(Verbosity::quiet);
  for (const PtqResult& result : all.results) {
    octet::Run alone = run;
    alone.recipe.quant.activation = result.activation;
    alone.recipe.calibrate.method = result.method;
    const PtqResult one = choose_ptq(alone, weights, /*all=*/false, cpu).results.front();
    EXPECT_EQ(one.loss, result.loss);
    EXPECT_EQ(one.score, result.score);
  }
}

/// As engine cudnn, which convolves int8 codes only.
TEST_F(PtqChoiceTest, AnEngineThatRefusesASchemeLosesThatResultOnly) {
  const auto symmetric_only = [&](const octet::Run& tried, const Int8Graph& graph) {
    if (tried.recipe.quant.activation != ActivationScheme::symmetric_s8) throw promise_error("engine x takes no uint8");
    return cpu(tried, graph);
  };
  const PtqChoice choice = choose_ptq(run, weights, /*all=*/true, symmetric_only);
  ASSERT_EQ(choice.results.size(), 15u);  // three schemes, four methods and auto
  for (const PtqResult& result : choice.results)
    EXPECT_EQ(result.refused, result.activation == ActivationScheme::symmetric_s8 ? "" : "engine x takes no uint8");
  EXPECT_EQ(choice.results[choice.chosen].activation, ActivationScheme::symmetric_s8);
  EXPECT_GT(choice.int8_test.images, 0);

  const auto nothing = [](const octet::Run&, const Int8Graph&) -> std::unique_ptr<Program> {
    throw promise_error("engine x takes nothing");
  };
  EXPECT_EQ(message_of(ExitCode::promise, [&] { choose_ptq(run, weights, true, nothing); }), "engine x takes nothing");
}

TEST(PtqResult, ComparesByScoreThenLossAndRefusedIsLast) {
  const PtqResult best{.score = 0.9, .loss = 0.3}, same_score{.score = 0.9, .loss = 0.4},
      less{.score = 0.8, .loss = 0.1};
  const PtqResult refused{.refused = "why"};
  EXPECT_TRUE(best.better_than(same_score));
  EXPECT_FALSE(same_score.better_than(best));
  EXPECT_TRUE(same_score.better_than(less));
  EXPECT_TRUE(less.better_than(refused));
  EXPECT_FALSE(refused.better_than(less));
}

}  // namespace
}  // namespace octet
