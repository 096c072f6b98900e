// SPDX-License-Identifier: Apache-2.0
// Gradients that ranks sum in buckets during the backward pass are those that they would sum after it.
#include "trainers/loop/gradients.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <optional>

#include "tests/trainers/ranks.h"
#include "tests/trainers/tiny.h"

namespace octet {
namespace {

using testing_trainers::kNobodyThrew;
using testing_trainers::message_of;
using testing_trainers::run_ranks;

constexpr int kMode = 1;

/// Parameters of a network of four layers: three buckets, in the second of which two lie.
std::vector<at::Tensor> make_parameters() {
  const auto make = [](const at::Tensor& values) { return values.set_requires_grad(true); };
  return {make(at::full({300'001}, 0.5)), make(at::full({30, 100'000}, 0.25)), make(at::full({7}, 2.0)),
          make(at::full({8, 3, 400, 400}, 1.0).contiguous(at::MemoryFormat::ChannelsLast))};
}

/// Every parameter's gradient has another value in every place, and another on every rank. Without `last` that one has
/// none.
at::Tensor loss_of(const std::vector<at::Tensor>& parameters, int rank, bool last = true) {
  at::Tensor loss;
  for (size_t i = 0; i + (last ? 0 : 1) < parameters.size(); ++i) {
    const at::Tensor& p = parameters[i];
    const at::Tensor factors = (at::arange(p.numel(), at::kFloat) * 1e-3).remainder(3.0).reshape(p.sizes()) + rank + 1;
    const at::Tensor part = (p * factors).mean();
    loss = loss.defined() ? loss * 0.5 + part : part;
  }
  return loss;
}

std::vector<at::Tensor> gradients_of(int rank, bool last = true) {
  const std::vector<at::Tensor> parameters = make_parameters();
  loss_of(parameters, rank, last).backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& p : parameters) gradients.push_back(p.grad());
  return gradients;
}

void clear(const std::vector<at::Tensor>& parameters) {
  for (at::Tensor p : parameters) p.mutable_grad() = at::Tensor();
}

TEST(GradientExchange, SumsAreThoseAfterTheBackwardPassAndBeginWithinIt) {
  const std::vector<at::Tensor> first = gradients_of(0), second = gradients_of(1);
  EXPECT_EQ(run_ranks(2,
                      [&](Ranks& ranks) {
                        const std::vector<at::Tensor> parameters = make_parameters();
                        GradientExchange exchange(ranks, parameters, ExchangeType::fp32);
                        ASSERT_EQ(exchange.buckets(), 3u);
                        for (int step = 0; step < 3; ++step) {
                          clear(parameters);
                          const at::Tensor loss = loss_of(parameters, ranks.rank());
                          const at::Tensor sums = at::full({3}, 1.0 + ranks.rank(), at::kDouble);
                          const at::Tensor statistics = at::full({5}, 10.0F + ranks.rank());
                          exchange.begin(kMode, {sums, statistics});
                          loss.backward();
                          exchange.finish();
                          EXPECT_EQ(exchange.started_early(), 3u);
                          EXPECT_TRUE(sums.equal(at::full({3}, 3.0, at::kDouble)));
                          EXPECT_TRUE(statistics.equal(at::full({5}, 21.0F)));
                          for (size_t i = 0; i < parameters.size(); ++i) {
                            EXPECT_TRUE(parameters[i].grad().equal(first[i] + second[i])) << i;
                            EXPECT_EQ(parameters[i].grad().strides(), parameters[i].strides()) << i;
                          }
                        }
                        EXPECT_GT(ranks.exchange_seconds(), 0);
                      }),
            kNobodyThrew);
}

TEST(GradientExchange, InHalfPrecisionTheyAreRounded) {
  const std::vector<at::Tensor> first = gradients_of(0), second = gradients_of(1);
  constexpr double kScale = 65536;  // as the loss scale does
  EXPECT_EQ(run_ranks(2,
                      [&](Ranks& ranks) {
                        const std::vector<at::Tensor> parameters = make_parameters();
                        GradientExchange exchange(ranks, parameters, ExchangeType::fp16);
                        const at::Tensor loss = loss_of(parameters, ranks.rank()) * kScale;
                        exchange.begin(kMode, {});
                        loss.backward();
                        exchange.finish();
                        for (size_t i = 0; i < parameters.size(); ++i) {
                          const at::Tensor& gradient = parameters[i].grad();
                          const at::Tensor exact = (first[i] + second[i]) * kScale;
                          EXPECT_EQ(gradient.scalar_type(), at::kFloat);
                          EXPECT_TRUE(at::allclose(gradient, exact, 2e-3, 1e-4)) << i;
                          EXPECT_FALSE(gradient.equal(exact)) << i;
                          EXPECT_TRUE(gradient.equal(gradient.to(at::kHalf).to(at::kFloat))) << i;
                        }
                      }),
            kNobodyThrew);
}

TEST(GradientExchange, WhatHasNoGradientHoldsUpTheFirstStepOnly) {
  const std::vector<at::Tensor> first = gradients_of(0, false), second = gradients_of(1, false);
  EXPECT_EQ(run_ranks(2,
                      [&](Ranks& ranks) {
                        const std::vector<at::Tensor> parameters = make_parameters();
                        GradientExchange exchange(ranks, parameters, ExchangeType::fp32);
                        for (int step = 0; step < 2; ++step) {
                          clear(parameters);
                          const at::Tensor loss = loss_of(parameters, ranks.rank(), /*last=*/false);
                          exchange.begin(kMode, {});
                          loss.backward();
                          exchange.finish();
                          EXPECT_EQ(exchange.started_early(), step == 0 ? 0u : 3u);
                          EXPECT_FALSE(parameters.back().grad().defined());
                          for (size_t i = 0; i + 1 < parameters.size(); ++i)
                            EXPECT_TRUE(parameters[i].grad().equal(first[i] + second[i])) << i;
                        }
                      }),
            kNobodyThrew);
}

/// Its sum has begun without it on other ranks, perhaps: never a wrong sum.
TEST(GradientExchange, AGradientThatWasNotThereBeforeIsRefused) {
  const std::vector<std::string> thrown = run_ranks(2, [&](Ranks& ranks) {
    const std::vector<at::Tensor> parameters = make_parameters();
    GradientExchange exchange(ranks, parameters, ExchangeType::fp32);
    for (const bool last : {false, true}) {
      clear(parameters);
      const at::Tensor loss = loss_of(parameters, ranks.rank(), last);
      exchange.begin(kMode, {});
      loss.backward();
      exchange.finish();
    }
  });
  for (const std::string& what : thrown)
    EXPECT_EQ(what.rfind("a parameter has a gradient that it did not have in the step before", 0), 0u) << what;
}

TEST(GradientExchange, OtherBackwardPassesAreLeftAlone) {
  EXPECT_EQ(run_ranks(2,
                      [&](Ranks& ranks) {
                        const std::vector<at::Tensor> parameters = make_parameters();
                        {
                          const GradientExchange exchange(ranks, parameters, ExchangeType::fp32);
                          loss_of(parameters, ranks.rank()).backward();
                        }
                        EXPECT_TRUE(parameters[2].grad().equal(gradients_of(ranks.rank())[2]));
                        clear(parameters);
                        loss_of(parameters, ranks.rank()).backward();  // the hooks are gone
                      }),
            kNobodyThrew);
}

}  // namespace
}  // namespace octet
