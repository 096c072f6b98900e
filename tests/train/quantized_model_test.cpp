// SPDX-License-Identifier: Apache-2.0
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/base/error.h"
#include "src/quant/plan.h"
#include "src/train/qat/fake_quantize.h"
#include "src/train/repair/quantization_noise.h"
#include "tests/train/networks.h"

namespace octet {
namespace {

constexpr QuantizedModel::Mode kObserving{.training = true, .batch_norm_training = true, .observe = true};

/// Takes a few steps of plain gradient descent.
void train_steps(QuantizedModel& model, int first, int last, bool observe = true) {
  for (int step = first; step < last; ++step) {
    QuantizedModel::Mode mode = kObserving;
    mode.observe = observe;
    model.forward(test::random_batch(step), mode).square().mean().backward();
    const c10::NoGradGuard no_grad;
    for (const auto& [name, w] : model.weights()) {
      if (!w.grad().defined()) continue;
      w.sub_(w.grad(), 0.01);
      w.mutable_grad().reset();
    }
  }
}

Weights copy(const Weights& weights) {
  Weights result;
  for (const auto& [name, w] : weights) result.emplace(name, w.detach().clone().requires_grad_(w.requires_grad()));
  return result;
}

TEST(QuantizedModel, QuantizesEveryEdgeOnce) {
  const Graph graph = test::resnet8();
  QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 1), {});
  const std::vector<QParams> edges = model.edges();
  const c10::NoGradGuard no_grad;
  std::vector<bool> seen(edges.size());
  const at::Tensor logits = model.forward(test::random_batch(1), {}, [&](int n, const at::Tensor& y) {
    seen[n] = true;
    if (model.prepared().float_output(n)) return;
    EXPECT_TRUE(at::equal(y, fake_quantize(y, edges[n]))) << "not on the grid: " << n;
  });
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), static_cast<long>(seen.size()));
  // Logits are not on a grid of 256 steps.
  EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{4, 10}));
  EXPECT_FALSE(at::equal(logits, fake_quantize(logits, {logits.abs().max().item<float>() / 127, 0, -128, 127})));
}

TEST(QuantizedModel, ApproachesFloatWithBits) {
  const Graph graph = test::resnet8();
  const Weights weights = test::random_weights(graph, 1);
  const c10::NoGradGuard no_grad;
  const at::Tensor exact = walk(graph, weights, test::random_batch(1), {});
  double before = std::numeric_limits<double>::infinity();
  for (const int bits : {3, 5, 8}) {
    QuantizedModel model(prepare(fuse(graph), uniform_bits(bits, bits)), weights, {.observer = ObserverKind::minmax});
    model.forward(test::random_batch(1), {.observe = true, .quantize = false});
    model.calibrate(CalibrationMethod::minmax, 100);
    const double error =
        (model.forward(test::random_batch(1), {}) - exact).norm().item<double>() / exact.norm().item<double>();
    EXPECT_LT(error, before / 2) << bits;
    before = error;
  }
  EXPECT_LT(before, 0.05);
}

TEST(QuantizedModel, ObserversMoveQParamsAndFreeze) {
  const Graph graph = test::resnet8();
  for (const ObserverKind kind : {ObserverKind::minmax, ObserverKind::moving_average, ObserverKind::histogram}) {
    QuantizedModel model(prepare(fuse(graph), {}), test::random_weights(graph, 1), {kind, 0.1});
    EXPECT_THROW(model.forward(test::random_batch(0), {}), Error);  // no scales yet
    train_steps(model, 0, 1);
    const std::vector<QParams> first = model.edges();
    train_steps(model, 1, 3);
    const std::vector<QParams> moved = model.edges();
    EXPECT_NE(first, moved);
    train_steps(model, 3, 5, /*observe=*/false);
    EXPECT_EQ(model.edges(), moved);
  }
}

/// The first batch, which hardly counts, moves nothing; and a calibrated range is not the range of the data.
TEST(QuantizedModel, ObserversStartAtTheCalibratedScalesInEveryBit) {
  constexpr double kNothing = 1e-12;  // far below a float's rounding
  const Graph graph = test::resnet8();
  const Weights weights = test::random_weights(graph, 1);
  const c10::NoGradGuard no_grad;
  for (const ActivationScheme scheme :
       {ActivationScheme::symmetric_s8, ActivationScheme::unsigned_u8, ActivationScheme::affine_u8}) {
    for (int bits = 2; bits <= 8; ++bits) {
      QuantizedModel model(prepare(fuse(graph), {.activation = scheme, .activation_bits = bits}), weights,
                           {.averaging = kNothing});
      model.forward(test::random_batch(1), {.observe = true, .quantize = false});
      model.calibrate(CalibrationMethod::percentile, 90);
      const std::vector<QParams> before = model.edges();
      model.forward(test::random_batch(2), {.observe = true});
      const std::vector<QParams> after = model.edges();
      for (size_t n = 0; n + 1 < before.size(); ++n)
        EXPECT_EQ(after[n], before[n]) << "bits " << bits << " edge " << n << ": scale times "
                                       << after[n].scale / before[n].scale;
    }
  }
}

TEST(QuantizedModel, GradientsReachEveryWeight) {
  const Graph graph = test::resnet8();
  QuantizedModel model(prepare(fuse(graph), {}), initial_weights(graph, 1), {.weights = WeightCalibrator::mse});
  model.forward(test::random_batch(0), kObserving).square().sum().backward();
  for (const auto& [name, w] : model.weights()) {
    if (!w.requires_grad()) continue;
    ASSERT_TRUE(w.grad().defined()) << name;
    EXPECT_GT(w.grad().abs().sum().item<float>(), 0) << name;
  }
}

/// A state holds scales for certain codes: under another bit plan they would mean something else.
TEST(QuantizedModel, RefusesTheStateOfAnotherBitPlan) {
  const Graph graph = test::resnet8();
  const Weights weights = test::random_weights(graph, 1);
  const auto state_of = [&](const QuantSpec& spec) { return test::calibrated(graph, weights, spec).state(); };
  const auto refusal = [&](const std::map<std::string, at::Tensor>& state, const QuantSpec& spec) {
    QuantizedModel model(prepare(fuse(graph), spec), weights, QuantizerOptions());
    try {
      model.load_state(state);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      return std::string(error.what());
    }
    EXPECT_EQ(model.state().at("edges.scale").equal(state.at("edges.scale")), true);
    return std::string();
  };
  const auto expect = [](const std::string& text, std::initializer_list<const char*> parts) {
    for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks: " << part;
  };
  const QuantSpec w4a4{.activation_bits = 4, .weight_bits = 4};
  QuantSpec wide = w4a4, full = w4a4;
  wide.residual_bits = 8;
  full.weight_range = WeightRange::full;
  EXPECT_EQ(refusal(state_of(w4a4), w4a4), "");
  EXPECT_EQ(refusal(state_of(wide), wide), "");
  expect(refusal(state_of({}), w4a4), {"node 'conv1' had codes in [0, 255], weights in [-127, 127], the recipe gives ",
                                       "[0, 15], weights in [-127, 127]", "train again"});
  expect(refusal(state_of(w4a4), full), {"node 'layer1.0.conv1' had codes in [0, 15], weights in [-7, 7]", "[-8, 7]"});
  expect(refusal(state_of(w4a4), wide), {"QAT state: "});
  // A state from before bit plans: the two keys applied to everything.
  const auto old = [&](const QuantSpec& spec) {
    std::map<std::string, at::Tensor> state = state_of(spec);
    state.erase("codes");
    return state;
  };
  EXPECT_EQ(refusal(old({}), {}), "");
  EXPECT_EQ(refusal(old(uniform_bits(4, 4)), uniform_bits(4, 4)), "");
  expect(refusal(old(uniform_bits(4, 4)), w4a4),
         {"node 'input' had codes in [0, 15], the recipe gives codes in [0, 255]",
          "quant.layers: [{match: \"*\", weight_bits: 4, activation_bits: 4}]"});
  expect(refusal(old(uniform_bits(4, 4)), full), {"node 'input' had"});
  expect(refusal(old(uniform_bits(4, 4)), wide), {"it has other nodes", "quant.layers: [{match"});
}

/// Straight-through gradients pass a requantize node, and the residual stream beside it keeps its own codes.
TEST(QuantizedModel, WideResidualStreamAndItsGradients) {
  const Graph graph = test::resnet8();
  QuantSpec spec{.activation_bits = 3, .weight_bits = 4, .residual_bits = 8};
  QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 1), spec);
  const std::vector<Node>& nodes = model.prepared().graph.nodes;
  const std::vector<QParams> edges = model.edges();
  int requantized = 0;
  model
      .forward(test::random_batch(0), kObserving,
               [&](int n, const at::Tensor& y) {
                 if (model.prepared().float_output(n)) return;
                 if (nodes[n].op != Op::requantize) return;
                 ++requantized;
                 EXPECT_EQ(edges[n].quant_max - edges[n].quant_min, 7) << nodes[n].name;
                 EXPECT_EQ(edges[nodes[n].inputs[0]].quant_max - edges[nodes[n].inputs[0]].quant_min, 255)
                     << nodes[n].name;
                 EXPECT_LE(std::get<0>(at::_unique(y.detach())).numel(), 8) << nodes[n].name;
               })
      .square()
      .sum()
      .backward();
  EXPECT_EQ(requantized, 1);  // layer1.0 alone has an identity for a shortcut
  for (const auto& [name, w] : model.weights()) {
    if (!w.requires_grad()) continue;
    ASSERT_TRUE(w.grad().defined()) << name;
    EXPECT_GT(w.grad().abs().sum().item<float>(), 0) << name;
  }
}

TEST(QuantizedModel, ResumesBitForBit) {
  const Graph graph = test::resnet8();
  for (const ObserverKind kind : {ObserverKind::minmax, ObserverKind::moving_average, ObserverKind::histogram}) {
    const auto make = [&](const Weights& weights) {
      return QuantizedModel(prepare(fuse(graph), {}), weights, {kind, 0.05});
    };
    QuantizedModel straight = make(test::random_weights(graph, 1));
    train_steps(straight, 0, 2);
    const Weights saved = copy(straight.weights());
    const std::map<std::string, at::Tensor> state = straight.state();
    train_steps(straight, 2, 4);

    QuantizedModel resumed = make(saved);
    resumed.load_state(state);
    train_steps(resumed, 2, 4);
    for (const auto& [name, w] : straight.weights()) EXPECT_TRUE(at::equal(w, resumed.weights().at(name))) << name;
    EXPECT_EQ(straight.edges(), resumed.edges());
    const auto a = straight.state(), b = resumed.state();
    for (const auto& [name, t] : a) EXPECT_TRUE(at::equal(t, b.at(name))) << name;
  }
}

TEST(QuantizedModel, AStateFromBeforeCalibrationHasNoScales) {
  const Graph graph = test::resnet8();
  const Weights weights = test::random_weights(graph, 1);
  QuantizedModel model = test::calibrated(graph, weights, {});
  model.load_state(QuantizedModel(prepare(fuse(graph), {}), weights, {.averaging = 0.05}).state());
  EXPECT_FALSE(model.has_scales());
  EXPECT_THROW(model.forward(test::random_batch(0), {.quantize = true}), Error);
}

TEST(QuantizedModel, ReadsAStateWhoseRangesAreFloats) {  // of an older octet
  const Graph graph = test::resnet8();
  const Weights weights = test::random_weights(graph, 1);
  QuantizedModel model = test::calibrated(graph, weights, {}), other = test::calibrated(graph, weights, {});
  train_steps(model, 0, 1);
  auto state = model.state();
  state.at("observer.range") = state.at("observer.range").to(at::kFloat);
  other.load_state(state);
  EXPECT_EQ(other.edges(), model.edges());
  EXPECT_TRUE(at::equal(other.state().at("observer.range"), state.at("observer.range").to(at::kDouble)));
}

TEST(QuantizedModel, RefusesAnotherNetworksState) {
  const Graph graph = test::resnet8();
  QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 1), {});
  const std::vector<QParams> before = model.edges();
  auto state = model.state();
  state.erase("edges.scale");
  EXPECT_THROW(model.load_state(state), Error);
  state = model.state();
  state["edges.scale"] = at::zeros({3});
  EXPECT_THROW(model.load_state(state), Error);
  EXPECT_EQ(model.edges(), before);
}

TEST(QuantizedModel, RefusesDamagedState) {
  const Graph graph = test::resnet8();
  QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 1), {});
  const std::vector<QParams> before = model.edges();
  const auto refused = [&](const std::string& name, double value) {
    auto state = model.state();
    state.at(name).view({-1})[0] = value;
    EXPECT_THROW(model.load_state(state), Error) << name << " " << value;
  };
  refused("edges.scale", 0);
  refused("edges.scale", NAN);
  refused("edges.zero_point", 1 << 30);
  refused("observer.range", INFINITY);
  refused("calibration", 4);
  refused("calibration", NAN);
  EXPECT_EQ(model.edges(), before);
}

TEST(QuantizedModel, NamesTheNodeThatIsNotFinite) {
  const Graph graph = test::resnet8();
  const Weights weights = test::random_weights(graph, 1);
  QuantizedModel model = test::calibrated(graph, weights, {});
  at::Tensor x = test::random_batch(0);
  x[0][0][3][3] = std::numeric_limits<float>::quiet_NaN();
  try {
    model.forward(x, kObserving);
    FAIL() << "observed NaN";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'input'"), std::string::npos) << error.what();
  }
}

TEST(QuantizedModel, DeterministicWithAnyThreads) {
  const Graph graph = test::resnet8();
  std::map<std::string, at::Tensor> states[2];
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    states[threads - 1] = test::calibrated(graph, test::random_weights(graph, 1), {}, CalibrationMethod::mse).state();
  }
  // Convolutions may add in another order with other threads; the input edge must not depend on them at all.
  EXPECT_EQ(states[0].at("edges.scale")[0].item<float>(), states[1].at("edges.scale")[0].item<float>());
  const auto again = test::calibrated(graph, test::random_weights(graph, 1), {}, CalibrationMethod::mse).state();
  for (const auto& [name, t] : states[1]) EXPECT_TRUE(at::equal(t, again.at(name))) << name;
}

/// Wherever the largest, the smallest or a damaged value stands, whichever thread has it sees it.
TEST(QuantizedModel, ThreadsSeeEveryValue) {
  const Graph graph = test::resnet8();
  const Weights weights = test::random_weights(graph, 1);
  at::manual_seed(5);
  const at::Tensor noise = at::randn({64, 3, 32, 32}).clamp_(-3, 3);  // 196,608 values: three threads share them
  const int before = at::get_num_threads();
  const c10::NoGradGuard no_grad;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    for (const int64_t place : {int64_t{0}, noise.numel() / 2, noise.numel() - 1}) {
      at::Tensor x = noise.clone();
      x.view({-1})[place] = 7;
      x.view({-1})[noise.numel() - 1 - place - (place == noise.numel() / 2)] = -9;
      QuantizedModel model(prepare(fuse(graph), {}), copy(weights), {.observer = ObserverKind::minmax});
      model.forward(x, kObserving);
      const at::Tensor range = model.state().at("observer.range")[0];
      EXPECT_EQ(range[0].item<float>(), -9) << threads << " threads, value " << place;
      EXPECT_EQ(range[1].item<float>(), 7) << threads << " threads, value " << place;
      x.view({-1})[place] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_THROW(model.forward(x, kObserving), Error) << threads << " threads, value " << place;
    }
  }
  at::set_num_threads(before);
}

}  // namespace
}  // namespace octet
