// SPDX-License-Identifier: Apache-2.0
// Ranks that train different networks are stopped by the loop.
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/trainers/comparable.h"
#include "tests/trainers/ranks.h"

namespace octet {
namespace {

using testing_trainers::Comparable;
using testing_trainers::expect_same_end;
using testing_trainers::Folder;
using testing_trainers::Kind;
using testing_trainers::kNobodyThrew;
using testing_trainers::run_ranks;
using testing_trainers::short_recipe;

/// What two ranks are told of which the second is `changed`, before it trains or in its second step.
std::vector<std::string> told_of(const Kind& kind, const std::function<void(Comparable&)>& changed, bool before) {
  Comparable first(short_recipe(), "", kind), second(short_recipe(), "", kind);
  const Folder folder("ranks_differ");
  if (before) changed(second);
  return run_ranks(2, [&](Ranks& ranks) {
    at::set_num_threads(1);
    Comparable& mine = ranks.first() ? first : second;
    mine.phase.ranks = &ranks;
    mine.phase.checkpoint = folder.path() + "/state.safetensors";
    mine.phase.stop = [&, asked = 0]() mutable {
      if (!before && !ranks.first() && ++asked == 2) changed(second);
      return false;
    };
    mine.run();
  });
}

TEST(RanksDiffer, AnotherNetworkIsNoticed) {
  const auto nudge = [](Comparable& rank) {
    const c10::NoGradGuard no_grad;
    at::Tensor weight = rank.weights.rbegin()->second;
    weight.view(-1)[0].add_(1e-6F);
  };
  const std::string name = Comparable(short_recipe(), "", {}).weights.rbegin()->first;
  const std::string differs = "'" + name + "' is not the same on all 2 ranks; they train different networks";
  EXPECT_EQ(told_of({}, nudge, true), std::vector<std::string>(2, "phase float, before training: " + differs));
  EXPECT_EQ(told_of({}, nudge, false), std::vector<std::string>(2, "phase float, after epoch 1: " + differs));
}

TEST(RanksDiffer, OtherScalesAreNoticed) {
  const Kind learned{.qat = true, .scales = EdgeScales::lsq};
  const auto nudge = [](Comparable& rank) {
    const c10::NoGradGuard no_grad;
    rank.phase.learned_scales().at("edges.scale").mul_(1.0001F);
  };
  const std::string differs = "'edges.scale' is not the same on all 2 ranks; they train different networks";
  EXPECT_EQ(told_of(learned, nudge, true), std::vector<std::string>(2, "phase qat, before training: " + differs));
  EXPECT_EQ(told_of(learned, nudge, false), std::vector<std::string>(2, "phase qat, after epoch 1: " + differs));
}

/// An epoch is one step, and behind each epoch the loop compares weights and quantizers.
TEST(RanksDiffer, NothingAfterAnyOfFiftySteps) {
  OptimizerRecipe recipe = short_recipe();
  recipe.batch_size = 128;
  recipe.epochs = 50;
  recipe.learning_rate = 0.02;
  for (const EdgeScales scales : {EdgeScales::fixed, EdgeScales::observed, EdgeScales::lsq, EdgeScales::lsq_plus}) {
    const Folder folder("ranks_alike");
    const Kind kind{.qat = true, .scales = scales};
    Comparable first(recipe, folder.path() + "/state.safetensors", kind), second(recipe, first.phase.checkpoint, kind);
    const auto thrown = run_ranks(2, [&](Ranks& ranks) {
      at::set_num_threads(1);
      Comparable& mine = ranks.first() ? first : second;
      mine.phase.ranks = &ranks;
      mine.run();
    });
    EXPECT_EQ(thrown, kNobodyThrew);
    EXPECT_EQ(first.epochs.size(), 50u);
    expect_same_end(first, second);
  }
}

}  // namespace
}  // namespace octet
