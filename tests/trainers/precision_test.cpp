// SPDX-License-Identifier: Apache-2.0
#include "trainers/loop/gradients.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "src/base/error.h"
#include "trainers/loop/optimizer.h"
#include "trainers/run/advice.h"

namespace octet {
namespace {

TEST(Precision, QatSaysWhatATypeCosts) {
  EXPECT_EQ(qat_precision_note(Precision::fp32), "");
  EXPECT_NE(qat_precision_note(Precision::bf16).find("3 to 20 %"), std::string::npos);
  EXPECT_NE(qat_precision_note(Precision::fp16).find("0.3 to 3 %"), std::string::npos);
}

TEST(Precision, Fp16OnACpuIsSaidToBeSlow) {
  EXPECT_EQ(cpu_precision_note("train", Precision::fp32), "");
  EXPECT_EQ(cpu_precision_note("train", Precision::bf16), "");
  EXPECT_NE(cpu_precision_note("qat", Precision::fp16).find("--set qat.precision=fp32"), std::string::npos);
}

TEST(GradScaler, GrowsAfterGoodStepsAndBacksOffAfterABadOne) {
  GradScaler scaler(at::kCPU, 8.0f, /*growth_interval=*/2);
  const auto scale = [&] { return scaler.state().at("scale").item<float>(); };
  EXPECT_FLOAT_EQ(scaler.scale(at::full({}, 3.0f)).item<float>(), 24.0f);

  const at::Tensor good = at::full({2, 3}, 16.0f);
  at::Tensor found = scaler.unscale({good});
  EXPECT_EQ(found.item<float>(), 0.0f);
  EXPECT_EQ(good[1][2].item<float>(), 2.0f);
  scaler.update(found);
  EXPECT_EQ(scale(), 8.0f);  // one good step
  scaler.update(found);
  EXPECT_EQ(scale(), 16.0f);  // two

  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const at::Tensor gradient = at::ones({4});
    gradient[3].fill_(bad);
    found = scaler.unscale({at::ones({2}), gradient});
    EXPECT_EQ(found.item<float>(), 1.0f);
    scaler.update(found);
  }
  EXPECT_EQ(scale(), 4.0f);
  scaler.update(at::full({}, 0.0f));
  EXPECT_EQ(scale(), 4.0f);  // the count of good steps began anew
}

TEST(ClipGradients, ScalesTheJointNormDownNeverUp) {
  const at::Tensor a = at::full({1}, 3.0f), b = at::full({1, 1}, 4.0f);
  const at::Tensor norm = joint_norm({a, b});
  EXPECT_FLOAT_EQ(norm.item<float>(), 5.0f);
  clip_gradients({a, b}, 10.0, norm);
  EXPECT_FLOAT_EQ(a.item<float>(), 3.0f);
  clip_gradients({a, b}, 1.0, norm);
  EXPECT_NEAR(a.item<float>(), 0.6f, 1e-6);
  EXPECT_NEAR(b.item<float>(), 0.8f, 1e-6);
}

TEST(WeightAverage, WorkedNumbersAndBuffers) {
  Weights weights{{"p", at::full({3}, 1.0f).set_requires_grad(true)}, {"running_mean", at::full({3}, 10.0f)}};
  WeightAverage average(weights, 0.9);
  weights.at("p").detach().fill_(2.0f);
  weights.at("running_mean").fill_(20.0f);
  average.update(at::full({}, average.rate(0), at::kDouble));  // d = min(0.9, 1/10)
  EXPECT_NEAR(average.average().at("p")[0].item<float>(), 1.9f, 1e-6);
  EXPECT_NEAR(average.average().at("running_mean")[0].item<float>(), 19.0f, 1e-5);
  average.update(at::full({}, average.rate(1000), at::kDouble));  // d = 0.9
  EXPECT_NEAR(average.average().at("p")[0].item<float>(), 1.91f, 1e-6);

  const WeightAverage slow(weights, 0.9998, 2000);  // yolox/utils/ema.py: decay (1 - exp(-updates / 2000)), from 1
  EXPECT_NEAR(slow.rate(0), 1 - 0.9998 * (1 - std::exp(-1.0 / 2000)), 1e-15);
  EXPECT_NEAR(slow.rate(1999), 1 - 0.9998 * (1 - std::exp(-1.0)), 1e-15);

  const void* storage = weights.at("p").const_data_ptr();
  const auto body = [&] {
    EXPECT_NEAR(weights.at("p")[0].item<float>(), 1.91f, 1e-6);
    EXPECT_EQ(weights.at("p").const_data_ptr(), storage);
  };
  average.while_in_place(body);
  EXPECT_EQ(weights.at("p")[0].item<float>(), 2.0f);
  EXPECT_THROW(average.while_in_place([&] { throw(body(), std::runtime_error("in validation")); }), std::runtime_error);
  EXPECT_EQ(weights.at("p")[0].item<float>(), 2.0f);
  EXPECT_NEAR(average.average().at("p")[0].item<float>(), 1.91f, 1e-6);
  average.apply();
  EXPECT_NEAR(weights.at("p")[0].item<float>(), 1.91f, 1e-6);
}

}  // namespace
}  // namespace octet
