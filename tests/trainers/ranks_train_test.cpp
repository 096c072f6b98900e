// SPDX-License-Identifier: Apache-2.0
// Two ranks train the network that one process trains.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/base/error.h"
#include "tests/trainers/comparable.h"
#include "tests/trainers/ranks.h"
#include "trainers/loop/train.h"

namespace octet {
namespace {

using testing_trainers::Comparable;
using testing_trainers::distance;
using testing_trainers::expect_same_end;
using testing_trainers::Folder;
using testing_trainers::Kind;
using testing_trainers::kNobodyThrew;
using testing_trainers::run_and_stop;
using testing_trainers::run_ranks;
using testing_trainers::short_recipe;
using testing_trainers::tiny_data;
using testing_trainers::tiny_graph;
using testing_trainers::Training;

/// 13 epochs of 4 steps: 52 steps.
OptimizerRecipe fifty_steps(double ema) {
  OptimizerRecipe recipe = short_recipe();
  recipe.ema = ema;
  recipe.epochs = 13;
  recipe.learning_rate = 0.02;
  return recipe;
}

/// What one process and then two ranks made of the same network and images.
struct OneAndTwo {
  double weights = 0, loss = 0;  ///< how far apart; weights by distance()
  double trained = 0;            ///< how far from the beginning
};

OneAndTwo train_both(const Kind& kind, uint64_t seed, double ema = 0) {
  const Folder folder("ranks");
  Comparable alone(fifty_steps(ema), folder.path() + "/alone.safetensors", kind);
  alone.phase.seed = seed;
  Weights before;
  for (const auto& [name, tensor] : alone.weights) before[name] = tensor.detach().clone();
  alone.run();
  Comparable first(fifty_steps(ema), folder.path() + "/two.safetensors", kind), second(fifty_steps(ema), "", kind);
  const auto thrown = run_ranks(2, [&](Ranks& ranks) {
    at::set_num_threads(1);
    Comparable& mine = ranks.first() ? first : second;
    mine.phase.ranks = &ranks;
    mine.phase.seed = seed;
    mine.phase.checkpoint = first.phase.checkpoint;
    mine.run();
  });
  EXPECT_EQ(thrown, kNobodyThrew);
  if (thrown != kNobodyThrew) return {.weights = 1, .loss = 1};
  expect_same_end(first, second);
  EXPECT_NEAR(alone.epochs.back().train_top1, first.epochs.back().train_top1, 0.02);
  return {.weights = distance(alone.weights, first.weights),
          .loss = std::abs(alone.epochs.back().train_loss - first.epochs.back().train_loss),
          .trained = distance(before, alone.weights)};
}

TEST(RanksTrain, TwoLikeOneInFloat) {
  for (const bool live : {false, true}) {
    for (const uint64_t seed : {1, 2, 3}) {
      const OneAndTwo both = train_both({.live_batch_norm = live}, seed);
      EXPECT_GT(both.trained, 0.05);
      EXPECT_LT(both.weights, 1e-5) << live << " " << seed;
      EXPECT_LT(both.loss, 1e-5) << live << " " << seed;
    }
  }
}

TEST(RanksTrain, TwoLikeOneWithMovingAverages) {
  const OneAndTwo both = train_both({}, 1, 0.9);
  EXPECT_GT(both.trained, 0.05);
  EXPECT_LT(both.weights, 1e-5);
}

/// Two halves add up to other last bits than one whole, and a value beside the middle of two codes then takes the other
/// code: a step of its scale, which no bound on rounding holds, and which processors meet at other seeds. There it is
/// still little beside what training changed; gradients that are not those of the batch change as much as training.
constexpr double kOfTraining = 0.05;

/// `seeds`: of six, those where no code is another, at least.
void expect_two_like_one(const Kind& kind, int seeds = 3) {
  int close = 0;
  for (const uint64_t seed : {1, 2, 3, 4, 5, 6}) {
    const OneAndTwo both = train_both(kind, seed);
    EXPECT_GT(both.trained, 0.05);
    EXPECT_LT(both.weights, kOfTraining * both.trained) << seed;
    if (both.weights < 1e-5) ++close;
  }
  EXPECT_GE(close, seeds);  // other processors round other sums
}

TEST(RanksTrain, TwoLikeOneInQat) { expect_two_like_one({.qat = true}); }
TEST(RanksTrain, TwoLikeOneWithObservedRanges) { expect_two_like_one({.qat = true, .scales = EdgeScales::observed}); }
TEST(RanksTrain, TwoLikeOneWithLearnedScales) { expect_two_like_one({.qat = true, .scales = EdgeScales::lsq}); }

/// Zero points are rounded, too: one that moves takes all codes of its edge along. Two of six seeds stay, here.
TEST(RanksTrain, TwoLikeOneWithLearnedOffsets) {
  expect_two_like_one({.qat = true, .scales = EdgeScales::lsq_plus}, 1);
}

TEST(RanksTrain, SynchronizedBatchNormTrainsInQat) {
  const OneAndTwo both = train_both({.qat = true, .live_batch_norm = true}, 1);
  EXPECT_GT(both.trained, 0.05);
  EXPECT_LT(both.loss, 0.01);
}

TEST(RanksTrain, AloneTheKeyChangesNoBit) {
  const Folder folder("ranks_key");
  for (const bool qat : {false, true}) {
    OptimizerRecipe on = short_recipe();
    on.sync_batch_norm = true;
    Training with(on, folder.path() + "/with.safetensors", qat),
        without(short_recipe(), folder.path() + "/without.safetensors", qat);
    with.run();
    without.run();
    expect_same_end(with, without);
  }
}

/// How far a run that two ranks begin and one ends is from one that never stopped, and that from its beginning.
OneAndTwo go_on(const Kind& kind, uint64_t seed) {
  const Folder folder("ranks_resume");
  const OptimizerRecipe recipe = short_recipe();
  Comparable alone(recipe, folder.path() + "/alone.safetensors", kind);
  alone.phase.seed = seed;
  Weights before;
  for (const auto& [name, tensor] : alone.weights) before[name] = tensor.detach().clone();
  alone.run();
  const std::string state = folder.path() + "/state.safetensors";
  Comparable first(recipe, state, kind), second(recipe, state, kind);
  const auto thrown = run_ranks(2, [&](Ranks& ranks) {
    at::set_num_threads(1);
    Comparable& mine = ranks.first() ? first : second;
    mine.phase.ranks = &ranks;
    mine.phase.seed = seed;
    if (!ranks.first()) return mine.run();  // it stops because rank 0 does
    run_and_stop(mine, 6);
  });
  EXPECT_EQ(thrown[0], "");
  EXPECT_EQ(thrown[1], "interrupted in phase " + first.phase.name + ", epoch 2, step 2");
  Comparable rest(recipe, state, kind);
  rest.phase.resume = true;
  rest.phase.seed = seed;
  rest.run();
  return {.weights = distance(alone.weights, rest.weights), .trained = distance(before, alone.weights)};
}

TEST(RanksTrain, AfterAStopAnyNumberGoesOn) {
  EXPECT_LT(go_on({}, 1).weights, 1e-5);
  int close = 0;
  for (const uint64_t seed : {1, 2, 3, 4, 5, 6}) {
    const OneAndTwo run = go_on({.qat = true}, seed);
    EXPECT_LT(run.weights, kOfTraining * run.trained) << seed;
    close += run.weights < 1e-5;
  }
  EXPECT_GE(close, 2);
}

/// AdaRound and bias correction change weights, calibration the quantizers: each rank by itself.
TEST(RanksTrain, WhatEachFoundBecomesTheFirstOnes) {
  Comparable first(short_recipe(), "", {.qat = true}), second(short_recipe(), "", {.qat = true});
  const at::Tensor kept = first.weights.begin()->second.detach().clone();
  const auto thrown = run_ranks(2, [&](Ranks& ranks) {
    const c10::NoGradGuard no_grad;
    Comparable& mine = ranks.first() ? first : second;
    if (!ranks.first()) {
      for (const auto& [name, tensor] : mine.weights) tensor.add_(0.5);
      mine.quantized->forward(at::full({1, 1, 8, 8}, 9.0F), {.observe = true, .quantize = false});
      mine.quantized->calibrate(CalibrationMethod::minmax, 99.99);
    }
    take_from_first(ranks, mine.weights, mine.quantized.get());
  });
  EXPECT_EQ(thrown, kNobodyThrew);
  EXPECT_TRUE(first.weights.begin()->second.equal(kept));
  for (const auto& [name, tensor] : first.weights) EXPECT_TRUE(tensor.equal(second.weights.at(name))) << name;
  const auto found = first.quantized->state(), taken = second.quantized->state();
  ASSERT_FALSE(found.empty());
  for (const auto& [name, tensor] : found) EXPECT_TRUE(tensor.equal(taken.at(name))) << name;
}

TEST(RanksTrain, LiveBatchNormKeepsTheMeanOfTheStatistics) {
  const Folder folder("ranks_bn");
  const OptimizerRecipe recipe = short_recipe();
  Training first(recipe, folder.path() + "/state.safetensors", false), second(recipe, first.phase.checkpoint, false);
  const auto thrown = run_ranks(2, [&](Ranks& ranks) {
    at::set_num_threads(1);
    Training& mine = ranks.first() ? first : second;
    mine.graph = fuse(tiny_graph());  // dropout's generator is the process's, and these are threads
    mine.phase.ranks = &ranks;
    mine.run();
  });
  EXPECT_EQ(thrown, kNobodyThrew);
  expect_same_end(first, second);
}

TEST(RanksTrain, ShareEveryBatch) {
  const RunData data = tiny_data();
  Transform transform = data.train_transform;
  const auto batches = [&](int size, int share, int shares) {
    Loader loader(*data.train_set, data.train, transform,
                  {.batch_size = size, .train = true, .seed = 3, .epoch = 1, .share = share, .shares = shares});
    std::vector<std::vector<uint8_t>> all;
    for (Batch batch; loader.next(batch);) all.emplace_back(batch.images.begin(), batch.images.end());
    return all;
  };
  const auto whole = batches(32, 0, 1), left = batches(16, 0, 2), right = batches(16, 1, 2);
  ASSERT_EQ(whole.size(), 4u);
  ASSERT_EQ(left.size(), 4u);
  for (size_t b = 0; b < whole.size(); ++b) {
    std::vector<uint8_t> both = left[b];
    both.insert(both.end(), right[b].begin(), right[b].end());
    EXPECT_EQ(both, whole[b]) << b;
  }
}

}  // namespace
}  // namespace octet
