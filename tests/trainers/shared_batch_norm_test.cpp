// SPDX-License-Identifier: Apache-2.0
// BatchNorm over the shares of a batch against LibTorch's over the whole.
#include "src/train/model/model.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "tests/error_of.h"
#include "tests/trainers/comparable.h"
#include "tests/trainers/ranks.h"

namespace octet {
namespace {

using testing_trainers::Comparable;
using testing_trainers::distance;
using testing_trainers::Kind;
using testing_trainers::kNobodyThrew;
using testing_trainers::run_ranks;
using testing_trainers::short_recipe;

constexpr double kMomentum = 0.1, kEpsilon = 1e-5;

/// Inputs and what a step makes of them.
struct Layer {
  Layer() {
    at::manual_seed(4);
    x = at::randn({8, 3, 4, 5}) * 2 + 50;  // far from zero: a sum of squares would lose its digits
    dy = at::randn({8, 3, 4, 5});
    tensors = {at::rand({3}) + 0.5, at::randn({3}), at::randn({3}), at::rand({3}) + 0.5};
  }

  /// Computes the images [begin, end), with leaves of its own.
  void run(int64_t begin, int64_t end, const GatherShares* gather) {
    x = x.slice(0, begin, end).contiguous(at::MemoryFormat::ChannelsLast).set_requires_grad(true);
    for (at::Tensor* leaf : {&tensors.weight, &tensors.bias}) leaf->set_requires_grad(true);
    y = gather == nullptr ? at::batch_norm(x, tensors.weight, tensors.bias, tensors.running_mean, tensors.running_var,
                                           /*training=*/true, kMomentum, kEpsilon, /*cudnn_enabled=*/false)
                          : shared_batch_norm(x, tensors, kMomentum, kEpsilon, *gather);
    (y * dy.slice(0, begin, end)).sum().backward();
  }

  at::Tensor x, dy, y;
  BatchNormTensors tensors;
};

void expect_close(const at::Tensor& a, const at::Tensor& b, const char* what) {
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  const double distance = ((a - b).norm() / b.norm()).item<double>();
  EXPECT_LT(distance, 5e-6) << what;  // a mean of 50 in float
}

TEST(SharedBatchNorm, TwoSharesAreTheWhole) {
  Layer whole, first, second;
  whole.run(0, 8, nullptr);
  EXPECT_EQ(run_ranks(2,
                      [&](Ranks& ranks) {
                        const GatherShares gather = [&](const at::Tensor& mine) { return ranks.gather(mine); };
                        if (ranks.first())
                          first.run(0, 4, &gather);
                        else
                          second.run(4, 8, &gather);
                      }),
            kNobodyThrew);
  const c10::NoGradGuard no_grad;
  expect_close(at::cat({first.y, second.y}), whole.y, "y");
  expect_close(at::cat({first.x.grad(), second.x.grad()}), whole.x.grad(), "gradient of x");
  expect_close(first.tensors.weight.grad() + second.tensors.weight.grad(), whole.tensors.weight.grad(), "of weight");
  expect_close(first.tensors.bias.grad() + second.tensors.bias.grad(), whole.tensors.bias.grad(), "of bias");
  for (const Layer* share : {&first, &second}) {
    expect_close(share->tensors.running_mean, whole.tensors.running_mean, "running mean");
    expect_close(share->tensors.running_var, whole.tensors.running_var, "running variance");
  }
}

TEST(SharedBatchNorm, OneValueOfAChannelAndNoneAreRefused) {
  const GatherShares alone = [](const at::Tensor& mine) { return mine.unsqueeze(0); };
  for (const int64_t images : {0, 1}) {
    const BatchNormTensors t = Layer().tensors;
    const std::string message = error_of([&] {
      shared_batch_norm(at::ones({images, 3, 1, 1}), t, kMomentum, kEpsilon, alone);
    });
    EXPECT_NE(message.find("larger batch_size or, with parallel.stages, fewer parallel.micro_batches"),
              std::string::npos)
        << message;
  }
}

/// What one step's forward and backward pass give.
struct Pass {
  std::vector<at::Tensor> codes;  ///< of every edge, [N, ...]
  Weights gradients;
};

Pass run_pass(Comparable& network, const at::Tensor& x, const at::Tensor& labels, double share,
              const GatherShares* shares) {
  Pass pass;
  const Prepared& prepared = network.quantized->prepared();
  const std::vector<QParams> edges = network.quantized->edges();
  const at::Tensor logits =
      network.quantized->forward(x, {.training = true, .batch_norm_training = true, .batch_norm_shares = shares},
                                 [&](int node, const at::Tensor& output) {
                                   if (prepared.has_edge(node))
                                     pass.codes.push_back((output.detach() / edges[prepared.root[node]].scale).round());
                                 });
  (at::cross_entropy_loss(logits, labels) * share).backward();
  for (const auto& [name, tensor] : network.weights) {
    if (!tensor.requires_grad()) continue;
    pass.gradients[name] = tensor.grad().clone();
    tensor.grad().zero_();
  }
  return pass;
}

/// With live BatchNorm a flipped code moves every image's values, so trainings part sooner than bounds can hold. One
/// pass shows all there is: few codes flip, and where none does the gradients are those of one process.
TEST(SharedBatchNorm, InQatFewCodesFlipAndElseGradientsAreTheSame) {
  constexpr int kPasses = 64;
  constexpr double kFlipsInAMillion = 10;
  const Kind kind{.qat = true, .live_batch_norm = true};
  Comparable alone(short_recipe(), "", kind), first(short_recipe(), "", kind), second(short_recipe(), "", kind);
  std::vector<at::Tensor> images, labels;
  at::manual_seed(11);
  for (int i = 0; i < kPasses; ++i) {
    images.push_back((at::rand({32, 1, 8, 8}) * 4 - 1).contiguous(at::MemoryFormat::ChannelsLast));
    labels.push_back(at::randint(4, {32}, at::kLong));
  }
  std::vector<Pass> whole, left(kPasses), right(kPasses);
  for (int i = 0; i < kPasses; ++i) whole.push_back(run_pass(alone, images[i], labels[i], 1, nullptr));
  const auto thrown = run_ranks(2, [&](Ranks& ranks) {
    at::set_num_threads(1);
    const GatherShares gather = [&](const at::Tensor& mine) { return ranks.gather(mine); };
    const int64_t begin = 16 * ranks.rank();
    for (int i = 0; i < kPasses; ++i)
      (ranks.first() ? left : right)[i] = run_pass(ranks.first() ? first : second, images[i].narrow(0, begin, 16),
                                                   labels[i].narrow(0, begin, 16), 0.5, &gather);
  });
  ASSERT_EQ(thrown, kNobodyThrew);
  int64_t codes = 0, flipped = 0;
  int passes_without = 0;
  for (int i = 0; i < kPasses; ++i) {
    int64_t flips = 0;
    for (size_t edge = 0; edge < whole[i].codes.size(); ++edge) {
      const at::Tensor both = at::cat({left[i].codes[edge], right[i].codes[edge]});
      flips += both.ne(whole[i].codes[edge]).sum().item<int64_t>();
      codes += both.numel();
    }
    flipped += flips;
    if (flips > 0) continue;
    ++passes_without;
    Weights sums;
    for (const auto& [name, gradient] : left[i].gradients) sums[name] = gradient + right[i].gradients.at(name);
    EXPECT_LT(distance(whole[i].gradients, sums), 1e-5) << i;
  }
  RecordProperty("codes", std::to_string(codes));
  RecordProperty("flipped", std::to_string(flipped));
  EXPECT_GT(codes, 1'000'000);
  EXPECT_LT(static_cast<double>(flipped), kFlipsInAMillion * 1e-6 * static_cast<double>(codes));
  EXPECT_GT(passes_without, kPasses / 2);
}

}  // namespace
}  // namespace octet
