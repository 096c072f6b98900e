// SPDX-License-Identifier: Apache-2.0
// QuantizedModel whose scales learn: their first values, their gradients, and what is saved.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/quant/plan.h"
#include "tests/train/networks.h"

namespace octet {
namespace {

constexpr QuantizerOptions kLearn{.weights = WeightCalibrator::lsq, .edges = EdgeScales::lsq};
constexpr EdgeScales kRules[] = {EdgeScales::lsq, EdgeScales::lsq_plus};
constexpr QuantizedModel::Mode kTrain{.training = true, .batch_norm_training = true}, kFrozenMoments{.training = true};

const QuantSpec kFewBits{.activation_bits = 3, .weight_bits = 3, .residual_bits = 8};

QuantizerOptions learning(EdgeScales edges) { return {.weights = WeightCalibrator::lsq, .edges = edges}; }

void descend(const Weights& tensors) {
  const c10::NoGradGuard no_grad;
  for (const auto& [name, t] : tensors) {
    if (!t.grad().defined()) continue;
    t.sub_(t.grad(), name.ends_with("scale") || name.starts_with("edges.") ? 1e-4 : 1e-3);
    t.mutable_grad() = at::Tensor();
  }
}

void train(QuantizedModel& model, int from, int to) {
  for (int i = from; i < to; ++i) {
    model.forward(test::random_batch(i), i % 2 == 0 ? kTrain : kFrozenMoments).square().mean().backward();
    descend(model.weights());
    descend(model.learned_scales());
    model.hold_zero_points();
  }
}

TEST(LearnedScales, BeginAsCalibrated) {
  const Graph graph = test::resnet8();
  const Weights weights = test::random_weights(graph, 1);
  const QuantizedModel plain =
      test::calibrated(graph, weights, kFewBits, CalibrationMethod::mse, {.weights = WeightCalibrator::mse});
  QuantizedModel model = test::calibrated(graph, weights, kFewBits, CalibrationMethod::mse, kLearn);
  EXPECT_EQ(model.edges(), plain.edges());
  EXPECT_EQ(model.weight_scales(), plain.weight_scales());
  EXPECT_TRUE(plain.learned_scales().empty());
  EXPECT_EQ(model.learned_scales().size(), 2u);
  const c10::NoGradGuard no_grad;
  QuantizedModel same = plain;
  EXPECT_TRUE(at::equal(model.forward(test::random_batch(1), {}), same.forward(test::random_batch(1), {})));
}

TEST(LearnedScales, GradientsReachEveryOneThatIsUsed) {
  const Graph graph = test::resnet8();
  for (const QuantizedModel::Mode mode : {kTrain, kFrozenMoments}) {
    QuantizedModel model =
        test::calibrated(graph, test::random_weights(graph, 1), kFewBits, CalibrationMethod::mse, kLearn);
    model.forward(test::random_batch(0), mode).square().sum().backward();
    const at::Tensor edges = model.learned_scales().at("edges.scale").grad();
    const Prepared& prepared = model.prepared();
    for (int n = 0; n < static_cast<int>(prepared.graph.nodes.size()); ++n)
      EXPECT_EQ(edges[n].item<float>() != 0, prepared.has_edge(n)) << prepared.graph.nodes[n].name;
    // Some channels are dead: random_weights gives them gamma 0, or nothing passes their ReLU.
    EXPECT_GT(model.learned_scales().at("weights.scale").grad().ne(0).to(at::kFloat).mean().item<float>(), 0.7);
    for (const auto& [name, w] : model.weights()) {
      if (!w.requires_grad()) continue;
      EXPECT_GT(w.grad().abs().sum().item<float>(), 0) << name;
    }
  }
}

TEST(LearnedScales, ResumeBitForBit) {
  const Graph graph = test::resnet8();
  for (const EdgeScales rule : kRules) {
    const Weights weights = test::random_weights(graph, 1);
    QuantizedModel straight = test::calibrated(graph, weights, kFewBits, CalibrationMethod::mse, learning(rule));
    train(straight, 0, 2);
    Weights saved;
    for (const auto& [name, w] : straight.weights())
      saved.emplace(name, w.detach().clone().set_requires_grad(w.requires_grad()));
    const std::map<std::string, at::Tensor> state = straight.state();
    train(straight, 2, 4);
    QuantizedModel resumed(straight.prepared(), saved, learning(rule));
    resumed.load_state(state);
    train(resumed, 2, 4);
    const auto a = straight.state(), b = resumed.state();
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [name, t] : a) EXPECT_TRUE(at::equal(t, b.at(name))) << name;
    for (const auto& [name, t] : straight.learned_scales()) EXPECT_FALSE(at::equal(a.at(name), state.at(name))) << name;
  }
}

/// The parameters as the paper defines them: a scale and the real value of code 0.
TEST(LearnedScales, OffsetsBeginAsCalibrated) {
  const Graph graph = test::resnet8();
  const Weights weights = test::random_weights(graph, 1);
  const std::vector<QParams> plain = test::calibrated(graph, weights, kFewBits, CalibrationMethod::mse).edges();
  const QuantizedModel model =
      test::calibrated(graph, weights, kFewBits, CalibrationMethod::mse, learning(EdgeScales::lsq_plus));
  const std::vector<QParams> edges = model.edges();
  bool signed_edge = false;
  for (size_t n = 0; n < plain.size(); ++n) {
    EXPECT_EQ(edges[n].scale, plain[n].scale);
    EXPECT_EQ(edges[n].zero_point, plain[n].zero_point);
    signed_edge = signed_edge || plain[n].zero_point > 0;
  }
  EXPECT_TRUE(signed_edge);
}

TEST(LearnedScales, OffsetsGetGradients) {
  const Graph graph = test::resnet8();
  QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 1), kFewBits, CalibrationMethod::mse,
                                          learning(EdgeScales::lsq_plus));
  model.forward(test::random_batch(0).mul_(4), kTrain)
      .square()
      .sum()
      .backward();  // further than calibration saw: clipped
  const at::Tensor gradient = model.learned_scales().at("edges.offset").grad();
  const Prepared& prepared = model.prepared();
  for (int n = 0; n < static_cast<int>(prepared.graph.nodes.size()); ++n) {
    const Node& node = prepared.graph.nodes[n];
    if (node.op == Op::global_avg_pool) continue;  // nothing is further than what it averages
    EXPECT_EQ(gradient[n].item<float>() != 0, prepared.has_edge(n)) << node.name;
  }
}

TEST(LearnedScales, ZeroPointsStayCodes) {
  const Graph graph = test::resnet8();
  QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 1), kFewBits, CalibrationMethod::mse,
                                          learning(EdgeScales::lsq_plus));
  const std::vector<QParams> before = model.edges();
  model.hold_zero_points();
  EXPECT_EQ(model.edges(), before);
  const c10::NoGradGuard no_grad;
  at::Tensor offsets = model.learned_scales().at("edges.offset");
  offsets[0] = 5;
  offsets[1] = -1e9;
  model.hold_zero_points();
  const QParams highest = model.edges()[1];
  EXPECT_EQ(offsets[0].item<float>(), 0);
  EXPECT_EQ(offsets[1].item<float>(), -highest.scale * static_cast<float>(highest.quant_max));
  EXPECT_EQ(model.edges()[0].zero_point, 0);
  EXPECT_EQ(highest.zero_point, highest.quant_max);
}

TEST(LearnedScales, OffsetsWantZeroPoints) {
  const Graph graph = test::resnet8();
  const QuantSpec symmetric{.activation = ActivationScheme::symmetric_s8};
  EXPECT_THROW(
      QuantizedModel(prepare(fuse(graph), symmetric), test::random_weights(graph, 1), learning(EdgeScales::lsq_plus)),
      Error);
}

TEST(LearnedScales, StatesOfOtherRulesAndDamagedOnesAreRefused) {
  const Graph graph = test::resnet8();
  const Weights weights = test::random_weights(graph, 1);
  QuantizedModel learned = test::calibrated(graph, weights, {}, CalibrationMethod::mse, kLearn);
  QuantizedModel plain = test::calibrated(graph, weights, {});
  const auto refusal = [](QuantizedModel& model, const std::map<std::string, at::Tensor>& state) {
    try {
      model.load_state(state);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refusal(plain, learned.state()).find("set quant.weight_calibrator: lsq"), std::string::npos);
  EXPECT_NE(refusal(learned, plain.state()).find("has no scales of weights"), std::string::npos);
  auto state = learned.state();
  const auto before = learned.state();
  state.at("weights.scale")[3] = 0;
  EXPECT_NE(refusal(learned, state).find("'weights.scale' holds impossible scales"), std::string::npos);
  EXPECT_TRUE(at::equal(learned.state().at("weights.scale"), before.at("weights.scale")));
  QuantizedModel offsets = test::calibrated(graph, weights, {}, CalibrationMethod::mse, learning(EdgeScales::lsq_plus));
  EXPECT_NE(refusal(offsets, before).find("it has no tensor 'edges.offset'"), std::string::npos);
  EXPECT_NE(refusal(learned, offsets.state()).find("it has tensor 'edges.offset'"), std::string::npos);
  auto damaged = offsets.state();
  damaged.at("edges.offset")[2] = 1;
  EXPECT_NE(refusal(offsets, damaged).find("holds impossible values"), std::string::npos);
  auto older = before;  // of an octet that had PACT
  older["edges.alpha"] = older.at("edges.scale") * 255;
  EXPECT_NE(refusal(learned, older).find("clipping levels of an older octet's quant.scales: pact"), std::string::npos);
}

TEST(LearnedScales, NeedACalibrationAndNoObserver) {
  const Graph graph = test::resnet8();
  QuantizedModel model(prepare(fuse(graph), {}), test::random_weights(graph, 1), kLearn);
  EXPECT_THROW(model.forward(test::random_batch(0), kTrain), Error);
  EXPECT_THROW(model.forward(test::random_batch(0), {.training = true, .observe = true}), Error);
  QuantizedModel ready = test::calibrated(graph, test::random_weights(graph, 1), {}, CalibrationMethod::mse, kLearn);
  EXPECT_THROW(ready.forward(test::random_batch(0), {.training = true, .observe = true}), Error);
  const QuantizerOptions weights_only{.weights = WeightCalibrator::lsq};
  QuantizedModel both =
      test::calibrated(graph, test::random_weights(graph, 1), {}, CalibrationMethod::mse, weights_only);
  const std::vector<QParams> before = both.edges();
  both.forward(test::random_batch(0), {.training = true, .observe = true});
  EXPECT_NE(both.edges(), before);  // observed edges beside learned weights
}

TEST(LearnedScales, AnyThatIsNotFiniteIsNamed) {
  const Graph graph = test::resnet8();
  QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 1), {}, CalibrationMethod::mse, kLearn);
  model.require_finite();
  const c10::NoGradGuard no_grad;
  model.learned_scales().at("edges.scale")[2] = INFINITY;
  try {
    model.require_finite();
    FAIL() << "infinite";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'edges.scale'"), std::string::npos);
  }
}

}  // namespace
}  // namespace octet
