// SPDX-License-Identifier: Apache-2.0
// TF32 is switched off again when rounding or distillation ends, also by an exception. Reads settings alone: needs no
// GPU.
#include "src/train/model/device.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <utility>

#include "src/train/repair/learned_codes.h"
#include "tests/train/rounded_networks.h"

namespace octet {
namespace {

using at::Float32Precision;
using Settings = std::pair<Float32Precision, Float32Precision>;

constexpr Settings kRounded{Float32Precision::TF32, Float32Precision::TF32};

/// Returns the settings for convolutions and for products.
Settings settings() {
  const auto of = [](at::Float32Op op) { return at::globalContext().float32Precision(at::Float32Backend::CUDA, op); };
  return {of(at::Float32Op::CONV), of(at::Float32Op::MATMUL)};
}

void set(const Settings& to) {
  at::globalContext().setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::CONV, to.first);
  at::globalContext().setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL, to.second);
}

class TensorFloat32Test : public ::testing::TestWithParam<Settings> {
 protected:
  TensorFloat32Test() { set(GetParam()); }
  ~TensorFloat32Test() override { set(found_); }

 private:
  Settings found_ = settings();
};

TEST_P(TensorFloat32Test, HoldsWhileItLivesAndRestores) {
  {
    const TensorFloat32 products(true);
    EXPECT_EQ(settings(), kRounded);
  }
  EXPECT_EQ(settings(), GetParam());
  const TensorFloat32 none(false);
  EXPECT_EQ(settings(), GetParam());
}

TEST_P(TensorFloat32Test, RestoresWhenTheBodyThrows) {
  try {
    const TensorFloat32 products(true);
    throw std::runtime_error("a step");
  } catch (const std::runtime_error&) {
    EXPECT_EQ(settings(), GetParam());
  }
}

// The distillation asks for images while products are rounded.
TEST_P(TensorFloat32Test, TeachingRoundsProductsAndRestoresWhenAStepThrows) {
  const Graph graph = test::residual_network("relu");
  for (const bool tf32 : {false, true}) {
    SCOPED_TRACE(tf32);
    QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 3), uniform_bits(8, 3));
    Weights floats = model.weights();
    for (auto& [name, tensor] : floats) tensor = tensor.detach().clone();
    Settings within = GetParam();
    const auto next = [&]() -> at::Tensor {
      within = settings();
      throw std::runtime_error("no images");
    };
    EXPECT_THROW(distill(model, floats, next, {.steps = 1, .rate = 1e-2, .temperature = 1, .tf32 = tf32}),
                 std::runtime_error);
    EXPECT_EQ(within == kRounded, tf32);
    EXPECT_EQ(settings(), GetParam());
  }
}

TEST_P(TensorFloat32Test, RoundingIsLearnedInItAndMeasuredWithout) {
  const Graph graph = test::residual_network("relu");
  QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 3), uniform_bits(8, 3));
  const auto done = [&](const Reconstructed&) {
    EXPECT_NE(settings(), kRounded);
    throw std::runtime_error("enough");
  };
  EXPECT_THROW(reconstruct(model, test::input_images(graph.nodes[0].shape, 8), false,
                           {.steps = 1, .batch_size = 8, .tf32 = true}, done),
               std::runtime_error);
  EXPECT_EQ(settings(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Found, TensorFloat32Test,
                         ::testing::Values(Settings{Float32Precision::IEEE, Float32Precision::IEEE}, kRounded,
                                           Settings{Float32Precision::IEEE, Float32Precision::TF32}));

}  // namespace
}  // namespace octet
