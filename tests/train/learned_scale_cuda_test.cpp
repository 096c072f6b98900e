// SPDX-License-Identifier: Apache-2.0
// Learned scales and offsets on the GPU: values and straight-through gradients are the CPU's bit for bit, the
// scales' gradients near them and the same each time, in a captured graph too.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/GradMode.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>

#include <vector>

#include "src/base/error.h"
#include "src/train/model/device.h"
#include "src/train/qat/fake_quantize.h"
#include "tests/cuda/gpu.h"
#include "tests/train/fake_quantize_outcome.h"
#include "tests/train/networks.h"

namespace octet {
namespace {

constexpr QParams kLearnedRanges[] = {
    {0.0371f, 0, -128, 127}, {0.0371f, 101, 0, 255}, {0.1f, 0, 0, 15}, {1.0f / 3, 3, 0, 7}, {1.7f, 0, -2, 1}};
constexpr at::ScalarType kLearnedTypes[] = {at::kFloat, at::kHalf, at::kBFloat16};
constexpr double kNear = 1e-3;

struct Inputs {
  at::Tensor x, bias, residual;
  LearnedEdge learned;
};
struct ScaleOutcome {
  at::Tensor y, dx, dbias, dscale, doffset;  // on the CPU
};

/// Returns an edge for every rule, with a range that is nearly q's; with offsets only where there are codes for them.
std::vector<LearnedEdge> rules(const QParams& q) {
  std::vector<LearnedEdge> edges = {{.value = at::full({}, q.scale)}};
  if (!q.is_signed())
    edges.push_back({at::full({}, q.scale), at::full({}, -q.scale * (static_cast<float>(q.zero_point) + 0.7f)),
                     kernels::RangeRule::lsq_plus});
  return edges;
}

template <class F>
ScaleOutcome run(const Inputs& inputs, at::Device device, const F& f) {
  const auto leaf = [&](const at::Tensor& t) {
    return t.defined() ? t.detach().to(device).clone().requires_grad_(true) : t;
  };
  const Inputs leaves{leaf(inputs.x),
                      leaf(inputs.bias),
                      leaf(inputs.residual),
                      {leaf(inputs.learned.value), leaf(inputs.learned.offset), inputs.learned.rule}};
  const at::Tensor y = f(leaves);
  at::manual_seed(9);  // positive on the whole: the sum over slopes of both signs must not be all cancellation
  const at::Tensor dy = at::randn(y.sizes()).add_(0.2).to(y.scalar_type());
  y.backward(dy.to(device));
  const auto gradient = [](const at::Tensor& t) { return t.defined() ? t.grad().cpu() : t; };
  return {y.detach().cpu(), gradient(leaves.x), gradient(leaves.bias), gradient(leaves.learned.value),
          gradient(leaves.learned.offset)};
}

void expect_near(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
  EXPECT_LE((got - want).norm().item<double>(), kNear * want.norm().item<double>()) << what;
}

TEST(LearnedScaleCuda, EqualsTheCpuInEveryLayoutAndType) {
  OCTET_NEEDS_GPU();
  for (const QParams& q : kLearnedRanges) {
    for (const at::ScalarType type : kLearnedTypes) {
      for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2, 4, 35, 30}, {3, 64, 33, 31}, {5, 401}}) {
        const at::Tensor x = test::values(q, shape).to(type);
        for (const LearnedEdge& edge : rules(q)) {
          const Inputs inputs{.x = x, .learned = edge};
          const auto f = [&](const Inputs& i) { return learned_fake_quantize(i.x, i.learned, q); };
          const ScaleOutcome cpu = run(inputs, at::kCPU, f), gpu = run(inputs, at::kCUDA, f),
                             again = run(inputs, at::kCUDA, f);
          EXPECT_TRUE(at::equal(gpu.y, cpu.y));
          EXPECT_TRUE(at::equal(gpu.dx, cpu.dx));
          expect_near(gpu.dscale, cpu.dscale, std::string(c10::toString(type)) + " scale " + std::to_string(q.scale));
          EXPECT_TRUE(at::equal(gpu.dscale, again.dscale)) << "again";
          ASSERT_EQ(gpu.doffset.defined(), edge.offset.defined());
          if (edge.offset.defined()) {
            expect_near(gpu.doffset, cpu.doffset, "offset");
            EXPECT_TRUE(at::equal(gpu.doffset, again.doffset)) << "again";
          }
        }
      }
    }
  }
}

/// Bias, residual and activation in the same pass, with channels-last and other memory; columns fewer and more than a
/// block has threads.
TEST(LearnedScaleCuda, BiasResidualAndActivationArePartOfThePass) {
  OCTET_NEEDS_GPU();
  for (const QParams& q : kLearnedRanges) {
    for (const at::ScalarType type : kLearnedTypes) {
      for (const int64_t channels : {24, 35, 2056}) {
        for (const at::MemoryFormat format : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::Contiguous}) {
          for (const LearnedEdge& edge : rules(q)) {
            for (const int parts : {1, 2, 3}) {  // bias, residual, both
              at::manual_seed(12);
              const std::vector<int64_t> shape{2, channels, 13, 7};
              const auto noise = [&](at::IntArrayRef sizes) { return at::randn(sizes) * (2 * q.scale); };
              Inputs inputs{.x = test::values(q, shape).to(type).contiguous(format), .learned = edge};
              if ((parts & 1) != 0) inputs.bias = noise({channels});
              if ((parts & 2) != 0) inputs.residual = noise(shape).to(type).contiguous(format);
              const ScaleOutcome cpu = run(inputs, at::kCPU, [&](const Inputs& i) {
                at::Tensor t = i.x.to(at::kFloat);
                if (i.bias.defined()) t = t + i.bias.view({1, -1, 1, 1});
                if (i.residual.defined()) t = t + i.residual.to(at::kFloat);
                return learned_fake_quantize(at::hardtanh(t, 0, 6), i.learned, q).to(type);
              });
              const auto f = [&](const Inputs& i) {
                return cuda_fake_quantize(i.x, i.bias, i.residual,
                                          {.qparams = q, .learned = i.learned, .activation = kernels::kRelu6});
              };
              const ScaleOutcome gpu = run(inputs, at::kCUDA, f), again = run(inputs, at::kCUDA, f);
              const bool summed_in_float = format == at::MemoryFormat::ChannelsLast || type == at::kFloat;
              if (summed_in_float) {
                EXPECT_TRUE(at::equal(gpu.y, cpu.y)) << channels << " " << parts;
                EXPECT_TRUE(at::equal(gpu.dx, cpu.dx)) << channels << " " << parts;
                expect_near(gpu.dscale, cpu.dscale, std::string(c10::toString(type)) + " " + std::to_string(channels));
              }
              EXPECT_TRUE(at::equal(gpu.dscale, again.dscale));
              if (inputs.bias.defined() && summed_in_float) {
                expect_near(gpu.dbias, cpu.dbias, "bias");
              }
              if (edge.offset.defined()) {
                EXPECT_TRUE(at::equal(gpu.doffset, again.doffset));
                if (summed_in_float) expect_near(gpu.doffset, cpu.doffset, "offset");
              }
            }
          }
        }
      }
    }
  }
}

/// Many weights in one launch, more than a table holds; with and without BatchNorm's gain.
TEST(LearnedScaleCuda, WeightsEqualTheCpuPerChannel) {
  OCTET_NEEDS_GPU();
  at::manual_seed(3);
  std::vector<at::Tensor> weights;
  std::vector<WeightCodes> codes;
  WeightQuantizer quantizer;
  for (int i = 0; i < 60; ++i) {
    const std::vector<int64_t> shape = i % 3 == 0   ? std::vector<int64_t>{16, 8, 3, 3}
                                       : i % 3 == 1 ? std::vector<int64_t>{24, 1, 3, 3}
                                                    : std::vector<int64_t>{10, 1290};
    weights.push_back(at::randn(shape));
    if (i % 6 == 0) weights.back() = weights.back().contiguous(at::MemoryFormat::ChannelsLast);
    codes.push_back(i % 4 == 0 ? WeightCodes{-127, 127} : i % 4 == 1 ? WeightCodes{-2, 1} : WeightCodes{-7, 7});
    quantizer.has_gain.push_back(i % 2 == 0);
  }
  std::vector<at::Tensor> scales;
  for (size_t i = 0; i < weights.size(); ++i)
    scales.push_back(at::rand({weights[i].size(0)}).add_(0.6).mul_(1.5 / codes[i].highest));
  for (const at::ScalarType type : kLearnedTypes) {
    const auto on_gpu = [&] {
      const at::Tensor learned = at::cat(scales).cuda().requires_grad_(true);
      WeightQuantizer there = quantizer;
      there.rules.rule = kernels::ScaleRule::given;
      there.codes = codes;
      there.scales = learned;
      there.not_finite = at::zeros({60}, at::TensorOptions(at::kCUDA).dtype(at::kInt));
      std::vector<at::Tensor> leaves;
      for (const at::Tensor& w : weights) leaves.push_back(w.cuda().requires_grad_(true));
      for (size_t i = 0; i < weights.size(); i += 2)
        there.gains.push_back(at::full({weights[i].size(0)}, 1.25f, at::kCUDA));
      const std::vector<at::Tensor> y = cuda_quantize_weights(leaves, there, type);
      at::Tensor sum = at::zeros({}, at::kCUDA);
      for (const at::Tensor& t : y)
        sum = sum + (t.to(at::kFloat) * at::arange(1, t.numel() + 1, at::kCUDA).remainder(7).view(t.sizes())).sum();
      sum.backward();
      return std::pair(learned.grad().cpu(), leaves);
    };
    const auto [gradient, leaves] = on_gpu();
    EXPECT_TRUE(at::equal(gradient, on_gpu().first)) << "again";
    int64_t at = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      const at::Tensor w = weights[i].clone().requires_grad_(true), s = scales[i].clone().requires_grad_(true);
      at::Tensor y = learned_fake_quantize_weight(w, s, codes[i]);
      if (i % 2 == 0) y = y * 1.25f;
      y.backward(at::arange(1, y.numel() + 1, at::kFloat).remainder(7).view(y.sizes()));
      EXPECT_TRUE(at::equal(leaves[i].grad().cpu(), w.grad())) << i;
      expect_near(gradient.narrow(0, at, s.numel()), s.grad(), "weight " + std::to_string(i));
      at += s.numel();
    }
  }
}

constexpr QuantizerOptions kLearn{.weights = WeightCalibrator::lsq, .edges = EdgeScales::lsq};
constexpr QuantizedModel::Mode kTrain{.training = true, .batch_norm_training = true}, kFrozen{.training = true};

Graph small_network() { return build_model({.name = "resnet8", .input = {3, 16, 16}}); }

QuantizedModel learned_model(const Graph& graph) {
  return test::calibrated(graph, test::random_weights(graph, 1), uniform_bits(4, 4), CalibrationMethod::mse, kLearn);
}

Weights copy(const Weights& weights) {
  Weights result;
  for (const auto& [name, w] : weights)
    result.emplace(name, w.detach().to(at::kCUDA).clone().requires_grad_(w.requires_grad()));
  return result;
}

QuantizedModel on_gpu(const QuantizedModel& model) {
  QuantizedModel gpu(model.prepared(), copy(model.weights()), kLearn);
  gpu.load_state(model.state());
  return gpu;
}

at::Tensor batch(int seed) {
  at::manual_seed(seed);
  return at::randn({4, 3, 16, 16}).contiguous(at::MemoryFormat::ChannelsLast);
}

Weights trained(const QuantizedModel& model) {
  Weights all = model.weights();
  all.merge(model.learned_scales());
  return all;
}

void step(QuantizedModel& model, const at::Tensor& x, at::ScalarType type, const QuantizedModel::Mode& mode) {
  for (const auto& [name, t] : trained(model))
    if (t.grad().defined()) t.mutable_grad().zero_();
  at::autocast::set_autocast_enabled(at::kCUDA, type != at::kFloat);
  if (type != at::kFloat) at::autocast::set_autocast_dtype(at::kCUDA, type);
  const at::Tensor logits = model.forward(x, mode);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCUDA, false);
  logits.to(at::kFloat).square().mean().backward();
}

void descend(const QuantizedModel& model) {
  const c10::NoGradGuard no_grad;
  for (const auto& [name, t] : trained(model))
    if (t.grad().defined()) t.sub_(t.grad(), name.ends_with(".scale") ? 1e-4 : 1e-2);
}

TEST(LearnedScaleCuda, CapturedStepEqualsEager) {
  OCTET_NEEDS_GPU();
  at::globalContext().setDeterministicCuDNN(true);
  const Graph graph = small_network();
  for (const at::ScalarType type : kLearnedTypes) {
    for (const QuantizedModel::Mode& mode : {kTrain, kFrozen}) {
      QuantizedModel captured = on_gpu(learned_model(graph));
      const at::Tensor x = batch(0).cuda();
      const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
      for (int i = 0; i < 3; ++i) step(captured, x, type, mode);
      QuantizedModel eager = on_gpu(captured);
      at::cuda::CUDAGraph cuda_graph;
      cuda_graph.capture_begin();
      step(captured, x, type, mode);
      descend(captured);
      cuda_graph.capture_end();
      for (int i = 1; i < 4; ++i) {
        x.copy_(batch(i));
        cuda_graph.replay();
        step(eager, batch(i).cuda(), type, mode);
        descend(eager);
        const Weights a = trained(captured), b = trained(eager);
        for (const auto& [name, t] : a) EXPECT_TRUE(at::equal(t.detach(), b.at(name).detach())) << name;
      }
      captured.require_finite();
      EXPECT_FALSE(at::equal(captured.state().at("edges.scale"), learned_model(graph).state().at("edges.scale")));
    }
  }
  at::globalContext().setDeterministicCuDNN(false);
}

TEST(LearnedScaleCuda, GradientsReachEveryScaleAndStatesMoveToTheCpu) {
  OCTET_NEEDS_GPU();
  const Graph graph = small_network();
  for (const QuantizedModel::Mode& mode : {kTrain, kFrozen}) {
    QuantizedModel model = on_gpu(learned_model(graph));
    step(model, batch(0).cuda(), at::kFloat, mode);
    const at::Tensor edges = model.learned_scales().at("edges.scale").grad().cpu();
    for (int n = 0; n < static_cast<int>(model.prepared().graph.nodes.size()); ++n)
      EXPECT_EQ(edges[n].item<float>() != 0, model.prepared().has_edge(n)) << n;
    EXPECT_GT(model.learned_scales().at("weights.scale").grad().ne(0).to(at::kFloat).mean().item<float>(),
              0.7);  // some channels are dead
    descend(model);
    const auto state = model.state();
    for (const auto& [name, w] : model.weights()) at::Tensor(w).set_data(w.detach().cpu());
    const c10::NoGradGuard no_grad;
    model.forward(batch(1), {});
    const auto after = model.state();
    for (const auto& [name, t] : state) EXPECT_TRUE(at::equal(t, after.at(name))) << name;
  }
}

TEST(LearnedScaleCuda, AWeightThatIsNotFiniteIsNamed) {
  OCTET_NEEDS_GPU();
  const Graph graph = small_network();
  QuantizedModel model = on_gpu(learned_model(graph));
  const c10::NoGradGuard no_grad;
  model.forward(batch(0).cuda(), {});
  model.require_finite();
  model.weights().at("layer1.0.conv1.weight").view({-1})[5] = INFINITY;
  model.forward(batch(0).cuda(), {});
  try {
    model.require_finite();
    FAIL() << "infinite";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'layer1.0.conv1'"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace octet
