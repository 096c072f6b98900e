// SPDX-License-Identifier: Apache-2.0
// QAT on codes: the forward pass gives the codes of the QAT graph, to the last one, also after weights or ranges have
// changed and in a captured graph; gradients are those of a walk in double through the same codes.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "src/train/model/device.h"
#include "src/train/model/step_graph.h"
#include "src/train/qat/fake_quantize.h"
#include "tests/cuda/gpu.h"
#include "tests/train/networks.h"

namespace octet {
namespace {

const at::Device kDevice(at::kCUDA, 0);
constexpr QuantizedModel::Mode kOnCodes{.training = true};
constexpr int kImages = 6;

/// Returns a calibrated model on the GPU.
QuantizedModel model_on_gpu(const Graph& graph, const Weights& weights, const QuantSpec& spec,
                            QatForward forward = QatForward::int8, WeightCalibrator by = WeightCalibrator::minmax) {
  const QuantizedModel calibrated = test::calibrated(graph, weights, spec, CalibrationMethod::minmax, {.weights = by});
  Weights moved = to_device(weights, kDevice);
  for (auto& [name, weight] : moved)
    if (weight.dim() == 4) weight.set_data(weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
  QuantizedModel model(calibrated.prepared(), moved, {.weights = by, .forward = forward});
  model.load_state(calibrated.state());
  return model;
}

struct Batch {
  std::vector<uint8_t> pixels;
  Preprocessing preprocessing;
  at::Tensor x;
};

Batch batch_for(const Graph& graph, uint64_t seed) {
  const Shape& shape = graph.nodes[0].shape;
  Batch batch{test::random_images(shape, kImages, seed), test::preprocessing_for(shape), {}};
  batch.x = images_to_tensor({batch.pixels.data(), kImages, shape}, batch.preprocessing.mean, batch.preprocessing.std)
                .to(kDevice);
  return batch;
}

/// What a forward pass gave: of each node the values [N, C, H, W] in float32 on the CPU.
std::map<int, at::Tensor> seen_by(QuantizedModel& model, const at::Tensor& x) {
  const Autocast autocast(at::kCUDA, Precision::fp16);
  std::map<int, at::Tensor> seen;
  model.forward(x, kOnCodes, [&](int n, const at::Tensor& y) { seen[n] = y.detach().to(at::kFloat).cpu(); });
  return seen;
}

at::Tensor codes_of(const at::Tensor& values, const QParams& q) {
  return at::round(values / q.scale) + static_cast<double>(q.zero_point);
}

struct Differences {
  int64_t codes = 0, differ = 0;
};

/// Compares every node's codes, and the bits of float outputs, with those of the QAT graph.
Differences compare(QuantizedModel& model, const Batch& batch) {
  const Int8Graph int8 = model.convert(batch.preprocessing, {});
  const auto expected = test::all_bytes(*qat_graph_program(model, batch.preprocessing), int8, batch.pixels, kImages);
  Differences found;
  for (const auto& [n, values] : seen_by(model, batch.x)) {
    const Int8Node& node = int8.nodes[n];
    if (node.op == Int8Op::flatten) continue;  // engines have another order of channels
    const std::string& bytes = expected.at(n);
    const at::Tensor pixels = values.permute({0, 2, 3, 1}).contiguous();
    const at::Tensor mine = (node.float_output ? pixels : codes_of(pixels, node.out)).contiguous();
    EXPECT_EQ(static_cast<size_t>(mine.numel()) * (node.float_output ? 4 : 1), bytes.size()) << node.name;
    for (int64_t i = 0; i < mine.numel(); ++i) {
      const float value = mine.const_data_ptr<float>()[i];
      float other;
      if (node.float_output) {
        std::memcpy(&other, &bytes[i * 4], 4);
      } else {
        other = node.out.is_signed() ? static_cast<float>(static_cast<int8_t>(bytes[i]))
                                     : static_cast<float>(static_cast<uint8_t>(bytes[i]));
      }
      ++found.codes;
      found.differ += value != other;
    }
  }
  return found;
}

TEST(Int8ForwardCuda, CodesAreTheQatGraphsToTheLastOne) {
  OCTET_NEEDS_GPU();
  std::vector<ModelSpec> networks = test::families();
  networks.push_back(test::other_operators());
  uint64_t seed = 1;
  for (const ModelSpec& network : networks) {
    const Graph graph = build_model(network);
    const Weights weights = test::random_weights(graph, ++seed);
    for (const ActivationScheme scheme : {ActivationScheme::affine_u8, ActivationScheme::symmetric_s8}) {
      QuantSpec spec;
      spec.activation = scheme;
      if (scheme == ActivationScheme::symmetric_s8) spec.weight_bits = 4;
      QuantizedModel model = model_on_gpu(graph, weights, spec);
      const Batch batch = batch_for(graph, seed);
      const Differences found = compare(model, batch);
      EXPECT_EQ(found.differ, 0) << network.name << ": of " << found.codes << " codes";
      EXPECT_GT(found.codes, 1000) << network.name;
      QuantizedModel simulated = model_on_gpu(graph, weights, spec, QatForward::simulation);
      RecordProperty(network.name + (scheme == ActivationScheme::affine_u8 ? "_u8" : "_s8"),
                     std::to_string(compare(simulated, batch).differ) + " differ in the simulation");
    }
  }
}

/// Fewer codes are narrower clamps of the same kernels. With residual_bits convolutions read codes of their own, which
/// a requantize node writes.
TEST(Int8ForwardCuda, CodesOfFewBitsAreTheQatGraphs) {
  OCTET_NEEDS_GPU();
  for (const ModelSpec& network :
       {test::family("resnet8", 32), test::family("mobilenet_v2", 32), test::other_operators()}) {
    const Graph graph = build_model(network);
    for (const ActivationScheme scheme : {ActivationScheme::affine_u8, ActivationScheme::symmetric_s8}) {
      for (const int residual_bits : {0, 8}) {
        QuantSpec spec{.activation = scheme, .activation_bits = 4, .weight_bits = 4, .residual_bits = residual_bits};
        QuantizedModel model = model_on_gpu(graph, test::random_weights(graph, 7), spec);
        const Differences found = compare(model, batch_for(graph, 7));
        EXPECT_EQ(found.differ, 0) << network.name << ": of " << found.codes << " codes, residual " << residual_bits;
        EXPECT_GT(found.codes, 1000) << network.name;
      }
    }
  }
}

/// Changes every weight, BatchNorm's parameters included.
void disturb(const Weights& weights, int seed) {
  const c10::NoGradGuard no_grad;
  at::manual_seed(seed);
  for (const auto& [name, weight] : weights)
    if (weight.requires_grad()) weight.add_(at::randn_like(weight), 0.02);
}

TEST(Int8ForwardCuda, CodesFollowTheWeights) {
  OCTET_NEEDS_GPU();
  for (const WeightCalibrator by : {WeightCalibrator::minmax, WeightCalibrator::mse}) {
    const Graph graph = build_model(test::family("mobilenet_v2", 32));
    QuantizedModel model = model_on_gpu(graph, test::random_weights(graph, 5), {}, QatForward::int8, by);
    const Batch batch = batch_for(graph, 5);
    for (int step = 0; step < 3; ++step) {
      EXPECT_EQ(compare(model, batch).differ, 0) << step;
      disturb(model.weights(), step);
    }
  }
}

/// A training step that is recorded and replayed.
class RecordedStep {
 public:
  RecordedStep(QuantizedModel& model, const at::Tensor& x) : model_(model), x_(x) {}

  /// Runs so many steps, after each of which the weights change; each gives the logits of a step that is only launched.
  void expect_equal(int steps) {
    for (int step = 0; step < steps; ++step) {
      recorded_.run(model_.launches(kOnCodes), [&] {
        ++launched;
        {
          const Autocast autocast(at::kCUDA, Precision::fp16);
          logits_ = model_.forward(x_, kOnCodes);
        }
        logits_.sum().backward();
      });
      const at::Tensor replayed = logits_.detach().cpu();
      const Autocast autocast(at::kCUDA, Precision::fp16);
      EXPECT_TRUE(at::equal(model_.forward(x_, kOnCodes).detach().cpu(), replayed)) << step;
      disturb(model_.weights(), step);
    }
  }
  int launched = 0;

 private:
  QuantizedModel& model_;
  const at::Tensor x_;
  const c10::cuda::CUDAStreamGuard stream_{c10::cuda::getStreamFromPool()};  // the default one cannot be captured
  StepGraph recorded_{/*capture=*/true};
  at::Tensor logits_;
};

constexpr int kRecorded = StepGraph::kWarmUps + 1;  // launches until a step is replayed

/// Gives all edges the ranges of these images.
void observe_anew(QuantizedModel& model, const at::Tensor& x) {
  const c10::NoGradGuard no_grad;
  model.restart_observers();
  model.forward(x, {.observe = true});
}

TEST(Int8ForwardCuda, ARecordedStepFollowsTheWeights) {
  OCTET_NEEDS_GPU();
  const Graph graph = test::resnet8();
  for (const WeightCalibrator by : {WeightCalibrator::minmax, WeightCalibrator::lsq}) {
    QuantizedModel model = model_on_gpu(graph, test::random_weights(graph, 5), {}, QatForward::int8, by);
    RecordedStep step(model, batch_for(graph, 5).x);
    step.expect_equal(kRecorded + 2);
    EXPECT_EQ(step.launched, kRecorded);
  }
}

/// As a validation of averaged weights does with observed ranges: the recording stays, and so does what it reads.
TEST(Int8ForwardCuda, ARecordedStepOutlivesRangesThatComeBack) {
  OCTET_NEEDS_GPU();
  const Graph graph = test::resnet8();
  QuantizedModel model = model_on_gpu(graph, test::random_weights(graph, 5), {});
  const Batch batch = batch_for(graph, 5), other = batch_for(graph, 6);
  RecordedStep step(model, batch.x);
  step.expect_equal(kRecorded + 1);
  for (int epoch = 0; epoch < 2; ++epoch) {
    const auto before = model.state();
    observe_anew(model, other.x);
    // Whoever takes memory that was freed overwrites it.
    std::vector<at::Tensor> garbage;
    for (int i = 0; i < 64; ++i)
      garbage.push_back(at::full({1 << 18}, 0x7f, at::TensorOptions(kDevice).dtype(at::kByte)));
    model.load_state(before);
    step.expect_equal(2);
  }
  EXPECT_EQ(step.launched, kRecorded);
}

TEST(Int8ForwardCuda, ARecordedStepIsRecordedAnewForOtherRanges) {
  OCTET_NEEDS_GPU();
  const Graph graph = test::resnet8();
  QuantizedModel model = model_on_gpu(graph, test::random_weights(graph, 5), {});
  const Batch batch = batch_for(graph, 5);
  RecordedStep step(model, batch.x);
  step.expect_equal(kRecorded + 1);
  observe_anew(model, batch_for(graph, 6).x);
  step.expect_equal(kRecorded + 1);
  EXPECT_EQ(step.launched, 2 * kRecorded);
  EXPECT_EQ(compare(model, batch).differ, 0);
}

/// Returns the gradients of a random sum of the logits by a walk in double, whose edges have the values `seen`. The
/// gradient of a layer's edge passes where codes are within their bounds, that of another where its value is.
Weights gradients_in_double(const QuantizedModel& model, const at::Tensor& x, const std::map<int, at::Tensor>& seen,
                            const at::Tensor& factors) {
  const Prepared& prepared = model.prepared();
  const Graph& graph = prepared.graph;
  const Int8Graph int8 = model.convert(test::preprocessing_for(graph.nodes[0].shape), {});
  const FloatParams scales = model.weight_scales();
  Weights doubles;
  for (const auto& [name, weight] : model.weights())
    doubles[name] = weight.detach().to(kDevice, at::kDouble).requires_grad_(weight.requires_grad());
  WalkHooks hooks;
  hooks.parameters = [&](int n, const LayerParameters&) {
    const Node& node = graph.nodes[n];
    const at::Tensor& w = doubles.at(node.name + ".weight");
    const at::Tensor quantized =
        fake_quantize_weight(w.detach().to(at::kFloat), scales.at(node.name), prepared.weight_codes(n)).to(at::kDouble);
    LayerParameters layer{w + (quantized - w).detach(), node.bias ? doubles.at(node.name + ".bias") : at::Tensor()};
    if (node.batch_norm.empty()) return layer;
    const auto of = [&](const char* what) { return doubles.at(node.batch_norm + what); };
    const at::Tensor gain = of(".weight") / (of(".running_var") + node.epsilon).sqrt();
    const at::Tensor offset = layer.bias.defined() ? layer.bias - of(".running_mean") : -of(".running_mean");
    std::vector<int64_t> by_channel(w.dim(), 1);
    by_channel[0] = -1;
    return LayerParameters{layer.weight * gain.view(by_channel), of(".bias") + offset * gain, true};
  };
  const auto real = [&](int n) { return seen.at(n).to(kDevice, at::kDouble); };
  hooks.finish = [&](int n, const Unfinished& y) {
    const Int8Node& node = int8.nodes[n];
    if (!prepared.has_edge(n)) return finished(y, graph.nodes[n].activation);
    const bool layer = has_weight(graph.nodes[n].op);
    const at::Tensor v = layer ? add_up(y) : finished(y, graph.nodes[n].activation);
    const at::Tensor codes = codes_of(layer ? real(n) : v.detach(), node.out);
    const at::Tensor passes = layer ? codes.gt(node.clamp_min).logical_and(codes.lt(node.clamp_max))
                                    : codes.ge(node.out.quant_min).logical_and(codes.le(node.out.quant_max));
    return real(n) + (v - v.detach()) * passes.to(at::kDouble);
  };
  hooks.output = [&](int n, at::Tensor y) { return n == 0 ? real(0) : y; };
  const at::Tensor logits = walk(graph, doubles, x.to(at::kDouble), {}, hooks);
  (logits * factors.to(at::kDouble)).sum().backward();
  return doubles;
}

double norm_of(const at::Tensor& x) { return x.to(at::kDouble).norm().item<double>(); }

/// Expects each parameter's gradient within `bound` of its norm.
void expect_gradients(const ModelSpec& network, Precision precision, double bound, const QuantSpec& spec = {}) {
  const Graph graph = build_model(network);
  QuantizedModel model = model_on_gpu(graph, test::random_weights(graph, 9), spec);
  const Batch batch = batch_for(graph, 9);
  const std::map<int, at::Tensor> seen = seen_by(model, batch.x);
  at::Tensor logits;
  {
    const Autocast autocast(at::kCUDA, precision);
    logits = model.forward(batch.x, kOnCodes);
  }
  at::manual_seed(3);
  const at::Tensor factors = at::randn(logits.sizes()).to(kDevice);
  (logits * factors).sum().backward();
  const Weights expected = gradients_in_double(model, batch.x, seen, factors);
  double all = 0;
  for (const auto& [name, weight] : expected) {
    if (!weight.requires_grad() || !weight.grad().defined()) continue;
    ASSERT_TRUE(model.weights().at(name).grad().defined()) << name;
    const double size = norm_of(weight.grad()), off = norm_of(model.weights().at(name).grad() - weight.grad());
    EXPECT_LE(off, bound * size + 1e-6) << network.name << " " << name << ": of " << size;
    all += size;
  }
  EXPECT_GT(all, 0);
}

TEST(Int8ForwardCuda, GradientsAreThoseOfDouble) {
  OCTET_NEEDS_GPU();
  for (const ModelSpec& network :
       {test::family("resnet8", 32), test::family("resnet50", 32), test::family("mobilenet_v2", 32),
        test::family("efficientnet_b0", 32), test::family("shufflenet_v2_x0_5", 32), test::other_operators()}) {
    // EfficientNet's are too small for float16 without a scaled loss.
    if (network.name != "efficientnet_b0") expect_gradients(network, Precision::fp16, 0.02);
    const FullPrecision full;
    expect_gradients(network, Precision::fp32, 1e-4);
  }
}

TEST(Int8ForwardCuda, GradientsOfFewBitsAreThoseOfDouble) {
  OCTET_NEEDS_GPU();
  const FullPrecision full;
  for (const ModelSpec& network :
       {test::family("resnet8", 32), test::family("mobilenet_v2", 32), test::other_operators()})
    for (const int residual_bits : {0, 8})
      expect_gradients(network, Precision::fp32, 1e-4,
                       {.activation_bits = 4, .weight_bits = 4, .residual_bits = residual_bits});
}

TEST(Int8ForwardCuda, OtherModesAreTheSimulation) {
  OCTET_NEEDS_GPU();
  const Graph graph = test::resnet8();
  const Weights weights = test::random_weights(graph, 2);
  QuantizedModel on_codes = model_on_gpu(graph, weights, {}),
                 simulated = model_on_gpu(graph, weights, {}, QatForward::simulation);
  const at::Tensor x = batch_for(graph, 2).x;
  for (const QuantizedModel::Mode& mode : {QuantizedModel::Mode{}, {.training = true, .batch_norm_training = true}}) {
    const Autocast autocast(at::kCUDA, Precision::fp16);
    EXPECT_TRUE(at::equal(on_codes.forward(x, mode), simulated.forward(x, mode)));
  }
  const Autocast autocast(at::kCUDA, Precision::fp16);
  EXPECT_FALSE(at::equal(on_codes.forward(x, kOnCodes), simulated.forward(x, kOnCodes).to(at::kFloat)));
}

}  // namespace
}  // namespace octet
