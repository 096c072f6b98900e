// SPDX-License-Identifier: Apache-2.0
// What two ranks judge, of which one has most of the boxes or of the labelled pixels, is what one process judges.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "src/base/random.h"
#include "src/data/labels.h"
#include "tests/trainers/ranks.h"
#include "trainers/loop/objective.h"

namespace octet {
namespace {

using testing_trainers::kNobodyThrew;
using testing_trainers::run_ranks;

constexpr int64_t kShared = 4, kCellsOfOne = 6 * 8 + 3 * 4;

BoxDecoder small_head() {
  BoxDecoder d;
  for (const auto& [stride, h, w] : {std::array{8, 6, 8}, std::array{16, 3, 4}}) {
    const int first = static_cast<int>(d.outputs.size());
    for (const int channels : {3, 4, 1}) d.outputs.push_back({{channels, h, w}, {}});
    d.head.levels.push_back({stride, first + 1, first + 2, first});
  }
  return d;
}

/// Loss, sums and the gradient of the outputs.
struct Judgement {
  at::Tensor loss, plain, right, gradient;
};

using Judge = std::function<Objective::Judged(const at::Tensor& outputs, int64_t first, const GatherShares* shares)>;

Judgement judged(const Judge& judge, const at::Tensor& outputs, int64_t first, int64_t count,
                 const GatherShares* shares) {
  const at::Tensor mine = outputs.narrow(0, first, count).clone().requires_grad_();
  const Objective::Judged all = judge(mine, first, shares);
  all.loss.backward();
  return {all.loss.detach(), all.plain, all.right, mine.grad()};
}

void expect_two_judge_as_one(const Judge& judge, const at::Tensor& outputs) {
  const Judgement whole = judged(judge, outputs, 0, kShared, nullptr);
  std::vector<Judgement> halves(2);
  const auto thrown = run_ranks(2, [&](Ranks& ranks) {
    const GatherShares shares = [&](const at::Tensor& mine) { return ranks.gather(mine); };
    halves[static_cast<size_t>(ranks.rank())] =
        judged(judge, outputs, ranks.rank() * kShared / 2, kShared / 2, &shares);
  });
  ASSERT_EQ(thrown, kNobodyThrew);
  const auto near = [](const at::Tensor& a, const at::Tensor& b) {
    EXPECT_NEAR(a.item<double>(), b.item<double>(), 1e-5 * std::abs(a.item<double>()) + 1e-9);
  };
  near(whole.loss, (halves[0].loss + halves[1].loss) / 2);
  near(whole.plain, (halves[0].plain + halves[1].plain) / 2);
  near(whole.right, halves[0].right + halves[1].right);
  const at::Tensor gradient = at::cat({halves[0].gradient, halves[1].gradient}) / 2;
  EXPECT_LT((gradient - whole.gradient).norm().item<double>(), 1e-5 * whole.gradient.norm().item<double>());
  EXPECT_GT(whole.gradient.norm().item<double>(), 1e-4);
  EXPECT_GT(std::abs(halves[0].loss.item<double>() - halves[1].loss.item<double>()), 1e-3) << "as uneven as it is hard";
}

/// Outputs, and labels of which the first half has as many boxes as `first`, the second ten.
std::pair<at::Tensor, at::Tensor> boxes(int first, uint64_t seed) {
  at::manual_seed(seed);
  at::Tensor labels = at::zeros({kShared, 5, kBoxValues}, at::kLong);
  labels.select(2, 0).fill_(kNoLabel);
  Random random({seed});
  for (int64_t image = 0; image < kShared; ++image)
    for (int64_t g = 0; g < (image < kShared / 2 ? first : 5); ++g) {
      const int64_t side = static_cast<int64_t>(kBoxUnits) * (8 + random.below(20));
      const int64_t values[] = {static_cast<int64_t>(random.below(3)),
                                static_cast<int64_t>(kBoxUnits) * random.below(40),
                                static_cast<int64_t>(kBoxUnits) * random.below(24), side, side};
      for (int v = 0; v < kBoxValues; ++v) labels[image][g][v] = values[v];
    }
  return {at::randn({kShared, 8 * kCellsOfOne}), labels};
}

TEST(RanksObjective, BoxesAreDividedByThoseOfAllRanks) {
  const BoxObjective objective(small_head(), at::kCPU);
  for (const int first : {0, 1, 2})
    for (const uint64_t seed : {1, 2, 3}) {
      const auto [outputs, labels] = boxes(first, seed);
      expect_two_judge_as_one(
          [&, labels = labels](const at::Tensor& mine, int64_t begin, const GatherShares* shares) {
            return objective.judge(mine, labels.narrow(0, begin, mine.size(0)), 0, {.input = {}, .shares = shares});
          },
          outputs);
    }
}

TEST(RanksObjective, ATeacherTeachesTwoWhatItTeachesOne) {
  const BoxObjective objective(small_head(), at::kCPU);
  at::manual_seed(4);
  const at::Tensor outputs = at::randn({kShared, 8 * kCellsOfOne});
  at::Tensor taught = at::randn({kShared, 8 * kCellsOfOne});
  taught.narrow(0, 0, kShared / 2).sub_(3);  // it sees little in the first half
  expect_two_judge_as_one(
      [&](const at::Tensor& mine, int64_t begin, const GatherShares* shares) -> Objective::Judged {
        const at::Tensor loss =
            objective.distill(mine, taught.narrow(0, begin, mine.size(0)), 4, {.input = {}, .shares = shares});
        return {loss, loss.detach(), at::zeros({}, at::kDouble)};
      },
      outputs);
}

TEST(RanksObjective, PixelsAreDividedByTheLabelledOnesOfAllRanks) {
  constexpr int64_t kClasses = 3, kSide = 6;
  at::manual_seed(5);
  const at::Tensor outputs = at::randn({kShared, kClasses * kSide * kSide});
  at::Tensor labels = at::randint(0, kClasses, {kShared, kSide, kSide}, at::kLong);
  labels.narrow(0, 0, kShared / 2).narrow(1, 0, 5).fill_(kNoLabel);
  for (const bool unlabelled : {false, true}) {
    if (unlabelled) labels.narrow(0, 0, kShared / 2).fill_(kNoLabel);
    for (const double smoothing : {0.0, 0.1})
      expect_two_judge_as_one(
          [&](const at::Tensor& mine, int64_t begin, const GatherShares* shares) {
            return class_objective().judge(mine, labels.narrow(0, begin, mine.size(0)), smoothing,
                                           {.input = {}, .shares = shares});
          },
          outputs);
  }
}

}  // namespace
}  // namespace octet
