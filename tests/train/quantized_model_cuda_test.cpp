// SPDX-License-Identifier: Apache-2.0
// QuantizedModel on the GPU compared with the CPU's, and with itself in a captured CUDA graph.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/GradMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>

#include <limits>

#include "src/base/error.h"
#include "src/quant/plan.h"
#include "src/train/model/device.h"
#include "src/train/qat/fake_quantize.h"
#include "tests/cuda/gpu.h"
#include "tests/train/networks.h"

namespace octet {
namespace {

constexpr QuantizedModel::Mode kObserving{.training = true, .batch_norm_training = true, .observe = true};
constexpr QuantizedModel::Mode kObservingFrozen{.training = true};

Graph network(const std::string& name = "resnet8") {
  ModelSpec spec;
  spec.name = name;
  return build_model(spec);
}

at::Tensor small_batch(int seed, int size = 4) {
  at::manual_seed(seed);
  return at::randn({size, 3, 32, 32}).contiguous(at::MemoryFormat::ChannelsLast);
}

QuantizedModel model_of(const Graph& graph, const Weights& weights, ObserverKind kind = ObserverKind::moving_average,
                        WeightCalibrator weights_by = WeightCalibrator::minmax, const QuantSpec& spec = {}) {
  return QuantizedModel(prepare(fuse(graph), spec), weights, {kind, 0.1, weights_by});
}

Weights copy(const Weights& weights, at::Device device) {
  Weights result;
  for (const auto& [name, w] : weights)
    result.emplace(name, w.detach().to(device).clone().requires_grad_(w.requires_grad()));
  return result;
}

void zero_gradients(const Weights& weights) {
  for (const auto& [name, w] : weights)
    if (w.grad().defined()) w.mutable_grad().zero_();
}

void descend(const Weights& weights) {
  const c10::NoGradGuard no_grad;
  for (const auto& [name, w] : weights)
    if (w.grad().defined()) w.sub_(w.grad(), 0.01);
}

class Autocast {
 public:
  explicit Autocast(at::ScalarType type) {
    at::autocast::set_autocast_enabled(at::kCUDA, type != at::kFloat);
    if (type != at::kFloat) at::autocast::set_autocast_dtype(at::kCUDA, type);
  }
  ~Autocast() {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCUDA, false);
  }
};

/// Runs forward and backward of one step, after which observers have moved.
void observing_step(QuantizedModel& model, const at::Tensor& x, at::ScalarType type,
                    const QuantizedModel::Mode& mode = kObserving) {
  at::Tensor logits;
  {
    const Autocast autocast(type);
    logits = model.forward(x, mode);
  }
  logits.to(at::kFloat).square().mean().backward();
}

void expect_equal(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, t] : a) EXPECT_TRUE(at::equal(t.cpu(), b.at(name).cpu())) << name;
}

/// Every value is one that a code stands for, rounded to the type. float16 keeps the code: at most 255 steps, rounded
/// by less than half a step. In bfloat16 the value of a code above 128 may lie nearer to another code's.
TEST(QuantizedModelCuda, EveryEdgeIsOnItsGrid) {
  OCTET_NEEDS_GPU();
  const Graph graph = network();
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    QuantizedModel model = model_of(graph, to_device(test::random_weights(graph, 1), at::kCUDA));
    observing_step(model, small_batch(0).cuda(), type);
    const std::vector<QParams> edges = model.edges();
    const c10::NoGradGuard no_grad;
    const Autocast autocast(type);
    for (const bool live : {false, true}) {
      size_t seen = 0;
      int64_t values = 0, of_other_codes = 0;
      model.forward(small_batch(1).cuda(), {.batch_norm_training = live}, [&](int n, const at::Tensor& y) {
        ++seen;
        if (model.prepared().float_output(n)) return;
        const at::Tensor stored = y.to(at::kFloat).cpu(), nearest = fake_quantize(stored, edges[n]);
        at::Tensor of_a_code = nearest.to(y.scalar_type()).to(at::kFloat).eq(stored);
        values += stored.numel();
        for (const int step : {-1, 1}) {
          const at::Tensor neighbour = (nearest + step * edges[n].scale).to(y.scalar_type()).to(at::kFloat).eq(stored);
          of_other_codes += neighbour.logical_and(of_a_code.logical_not()).sum().item<int64_t>();
          of_a_code = of_a_code.logical_or(neighbour);
        }
        EXPECT_TRUE(of_a_code.all().item<bool>()) << n;
        EXPECT_GT(stored.abs().max().item<float>(), 0);
      });
      EXPECT_EQ(seen, edges.size());
      const double share = static_cast<double>(of_other_codes) / static_cast<double>(values);
      RecordProperty(std::string("share_of_other_codes_") + c10::toString(type), std::to_string(share));
      EXPECT_LE(share, type == at::kBFloat16 ? 0.1 : 0);
    }
  }
}

/// The input edge sees the same values on both sides; the kernels' tests do the same for every kind of edge.
TEST(QuantizedModelCuda, ObserversFollowToTheSameBits) {
  OCTET_NEEDS_GPU();
  const Graph graph = network();
  for (const ObserverKind kind : {ObserverKind::minmax, ObserverKind::moving_average}) {
    const Weights weights = test::random_weights(graph, 1);
    QuantizedModel cpu = model_of(graph, weights, kind), gpu = model_of(graph, to_device(weights, at::kCUDA), kind);
    for (int i = 0; i < 4; ++i) {
      const c10::NoGradGuard no_grad;
      cpu.forward(small_batch(i), kObserving);
      gpu.forward(small_batch(i).cuda(), kObserving);
      EXPECT_EQ(cpu.edges()[0], gpu.edges()[0]) << i;
      EXPECT_TRUE(at::equal(cpu.state().at("observer.range")[0], gpu.state().at("observer.range")[0])) << i;
    }
    const std::vector<QParams> moved = gpu.edges();
    const c10::NoGradGuard no_grad;
    gpu.forward(small_batch(9).cuda(), {.training = true, .batch_norm_training = true});
    EXPECT_EQ(gpu.edges(), moved) << "frozen observers";
  }
}

TEST(QuantizedModelCuda, CalibratesLikeTheCpu) {
  OCTET_NEEDS_GPU();
  const Graph graph = network();
  const Weights weights = test::random_weights(graph, 1);
  QuantizedModel cpu = model_of(graph, weights, ObserverKind::histogram);
  QuantizedModel gpu = model_of(graph, to_device(weights, at::kCUDA), ObserverKind::histogram);
  const FullPrecision no_tf32;
  const c10::NoGradGuard no_grad;
  for (int i = 0; i < 3; ++i) {
    cpu.forward(small_batch(i), {.observe = true, .quantize = false});
    gpu.forward(small_batch(i).cuda(), {.observe = true, .quantize = false});
  }
  for (const CalibrationMethod method :
       {CalibrationMethod::minmax, CalibrationMethod::percentile, CalibrationMethod::mse, CalibrationMethod::entropy}) {
    cpu.calibrate(method, 99.9);
    gpu.calibrate(method, 99.9);
    EXPECT_EQ(cpu.edges()[0], gpu.edges()[0]);
    EXPECT_TRUE(at::equal(cpu.state().at("observer.histogram")[0], gpu.state().at("observer.histogram")[0]));
    // Activations differ by rounding errors of convolutions, and so do their ranges.
    for (size_t n = 0; n < cpu.edges().size(); ++n)
      EXPECT_NEAR(gpu.edges()[n].scale / cpu.edges()[n].scale, 1, method == CalibrationMethod::minmax ? 1e-4 : 0.1);
  }
  gpu.forward(small_batch(0).cuda(), {});
}

TEST(QuantizedModelCuda, WeightScalesAndCodesAreTheCpus) {
  OCTET_NEEDS_GPU();
  const Graph graph = network();
  for (const WeightCalibrator by : {WeightCalibrator::minmax, WeightCalibrator::mse}) {
    for (const Granularity granularity : {Granularity::per_channel, Granularity::per_tensor}) {
      const QuantSpec spec{.weight_bits = by == WeightCalibrator::mse ? 4 : 8, .weight_granularity = granularity};
      const Weights weights = test::random_weights(graph, 1);
      QuantizedModel cpu = model_of(graph, weights, ObserverKind::minmax, by, spec);
      QuantizedModel gpu = model_of(graph, to_device(weights, at::kCUDA), ObserverKind::minmax, by, spec);
      EXPECT_EQ(cpu.weight_scales(), gpu.weight_scales());
      observing_step(gpu, small_batch(0).cuda(), at::kFloat);
      cpu.load_state(gpu.state());
      const Preprocessing preprocessing = test::preprocessing_for(graph.nodes[0].shape);
      for (auto& [name, w] : weights) {  // BatchNorm's statistics moved
        const c10::NoGradGuard no_grad;
        at::Tensor(w).copy_(gpu.weights().at(name));
      }
      const Int8Graph a = cpu.convert(preprocessing, {}), b = gpu.convert(preprocessing, {});
      for (size_t n = 0; n < a.nodes.size(); ++n) {
        EXPECT_EQ(a.nodes[n].weight, b.nodes[n].weight);
        EXPECT_EQ(a.nodes[n].multiplier, b.nodes[n].multiplier);
        EXPECT_EQ(a.nodes[n].bias, b.nodes[n].bias);
      }
    }
  }
}

TEST(QuantizedModelCuda, FollowsItsWeightsAndResumes) {
  OCTET_NEEDS_GPU();
  at::globalContext().setDeterministicCuDNN(true);
  const Graph graph = network();
  QuantizedModel model = model_of(graph, to_device(test::random_weights(graph, 1), at::kCUDA));
  for (int i = 0; i < 2; ++i) {
    zero_gradients(model.weights());
    observing_step(model, small_batch(i).cuda(), at::kFloat);
    descend(model.weights());
  }
  QuantizedModel resumed = model_of(graph, copy(model.weights(), at::kCUDA));
  resumed.load_state(model.state());
  expect_equal(resumed.state(), model.state());
  for (QuantizedModel* m : {&model, &resumed}) {
    zero_gradients(m->weights());
    observing_step(*m, small_batch(7).cuda(), at::kFloat);
  }
  expect_equal(resumed.state(), model.state());
  for (const auto& [name, w] : model.weights()) {
    if (!w.requires_grad()) continue;
    EXPECT_TRUE(at::equal(w.grad(), resumed.weights().at(name).grad())) << name;
  }
  // The model moves to the CPU and continues there.
  const std::map<std::string, at::Tensor> before = model.state();
  for (const auto& [name, w] : model.weights()) at::Tensor(w).set_data(w.detach().cpu());
  const c10::NoGradGuard no_grad;
  model.forward(small_batch(8), {});
  expect_equal(model.state(), before);
  model.forward(small_batch(8), kObserving);
  EXPECT_FALSE(at::equal(model.state().at("edges.scale"), before.at("edges.scale")));
  at::globalContext().setDeterministicCuDNN(false);
}

/// Capturing in global mode, of every thread (backward runs on autograd's), refuses waits for the GPU and copies that
/// wait; memory comes from LibTorch's pool of the graph, whose cudaMalloc is allowed.
TEST(QuantizedModelCuda, CapturedStepEqualsEager) {
  OCTET_NEEDS_GPU();
  at::globalContext().setDeterministicCuDNN(true);
  const Graph graph = network();
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    constexpr WeightCalibrator kMinmax = WeightCalibrator::minmax, kMse = WeightCalibrator::mse;
    for (const auto& [by, frozen] : {std::pair(kMinmax, false), {kMse, false}, {kMinmax, true}, {kMse, true}}) {
      QuantizedModel captured =
          model_of(graph, to_device(test::random_weights(graph, 1), at::kCUDA), ObserverKind::moving_average, by);
      const at::Tensor x = small_batch(0).cuda();
      const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
      const c10::cuda::CUDAStreamGuard guard(stream);
      for (int i = 0; i < 3; ++i) observing_step(captured, x, type);
      if (frozen) observing_step(captured, x, type, kObservingFrozen);
      QuantizedModel eager = model_of(graph, copy(captured.weights(), at::kCUDA), ObserverKind::moving_average, by);
      eager.load_state(captured.state());
      at::cuda::CUDAGraph cuda_graph;
      cuda_graph.capture_begin();
      zero_gradients(captured.weights());
      observing_step(captured, x, type, frozen ? kObservingFrozen : kObserving);
      descend(captured.weights());
      cuda_graph.capture_end();
      for (int i = 1; i < 4; ++i) {
        x.copy_(small_batch(i));
        cuda_graph.replay();
        zero_gradients(eager.weights());
        observing_step(eager, small_batch(i).cuda(), type, frozen ? kObservingFrozen : kObserving);
        descend(eager.weights());
        expect_equal(captured.state(), eager.state());
        expect_equal(captured.weights(), eager.weights());
      }
      captured.require_finite();
    }
  }
  at::globalContext().setDeterministicCuDNN(false);
}

TEST(QuantizedModelCuda, TrainsInEveryPrecision) {
  OCTET_NEEDS_GPU();
  for (const std::string name : {"resnet8", "mobilenet_v2", "vgg11_bn"}) {
    const Graph graph = network(name);
    for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const bool frozen : {false, true}) {
        QuantizedModel model = model_of(graph, to_device(initial_weights(graph, 1), at::kCUDA));
        observing_step(model, small_batch(0, 8).cuda(), type);
        if (frozen) {
          zero_gradients(model.weights());
          observing_step(model, small_batch(0, 8).cuda(), type, kObservingFrozen);
        }
        model.require_finite();
        for (const auto& [parameter, w] : model.weights()) {
          if (!w.requires_grad()) continue;
          ASSERT_TRUE(w.grad().defined()) << parameter;
          EXPECT_EQ(w.grad().scalar_type(), at::kFloat);
          EXPECT_GT(w.grad().abs().sum().item<float>(), 0) << parameter;
        }
      }
    }
  }
}

/// Between forward and backward QAT keeps what plain mixed precision keeps, and a bit a value; with BatchNorm frozen
/// not even what convolutions gave.
TEST(QuantizedModelCuda, KeepsLittleForTheBackwardPass) {
  OCTET_NEEDS_GPU();
  const Graph graph = network();
  QuantizedModel model = model_of(graph, to_device(test::random_weights(graph, 1), at::kCUDA));
  const at::Tensor x = small_batch(0, 128).cuda();
  const auto allocated = [] { return c10::cuda::CUDACachingAllocator::getDeviceStats(0).allocated_bytes[0].current; };
  const auto kept = [&](const auto& forward) {
    const int64_t before = allocated();
    const Autocast autocast(at::kHalf);
    const at::Tensor logits = forward();
    return static_cast<double>(allocated() - before);
  };
  observing_step(model, x, at::kHalf);  // tables and workspaces
  const double plain =
      kept([&] { return walk(model.prepared().graph, model.weights(), x, {.batch_norm_training = true}); });
  const double quantized = kept([&] { return model.forward(x, kObserving); });
  RecordProperty("kept_by_qat_of_plain", std::to_string(quantized / plain));
  EXPECT_LT(quantized, 1.1 * plain);
  const double frozen = kept([&] { return model.forward(x, kObservingFrozen); });
  RecordProperty("kept_by_frozen_qat_of_plain", std::to_string(frozen / plain));
  EXPECT_LT(frozen, 0.7 * plain);
}

TEST(QuantizedModelCuda, NamesWhatIsNotFinite) {
  OCTET_NEEDS_GPU();
  const Graph graph = network();
  QuantizedModel model = model_of(graph, to_device(test::random_weights(graph, 1), at::kCUDA));
  observing_step(model, small_batch(0).cuda(), at::kFloat);
  model.require_finite();
  const std::map<std::string, at::Tensor> good = model.state();
  const auto refused = [&](const std::string& name) {
    try {
      model.require_finite();
      FAIL() << name << " is not finite";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::promise);
      EXPECT_NE(std::string(error.what()).find("'" + name + "'"), std::string::npos) << error.what();
    }
  };
  at::Tensor x = small_batch(0);
  x[0][0][3][3] = std::numeric_limits<float>::quiet_NaN();
  const c10::NoGradGuard no_grad;
  model.forward(x.cuda(), kObserving);
  refused("input");
  model.load_state(good);
  model.require_finite();
  at::Tensor weight = model.weights().at("layer1.0.conv1.weight");
  weight.view({-1})[5] = std::numeric_limits<float>::infinity();
  model.forward(small_batch(0).cuda(), {});
  refused("layer1.0.conv1");
}

TEST(QuantizedModelCuda, RefusesToFollowHistograms) {
  try {
    require_observer(ObserverKind::histogram, at::kCUDA);
    FAIL() << "histograms cannot be followed on the GPU";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(std::string(error.what()).find("moving_average"), std::string::npos);
  }
  require_observer(ObserverKind::histogram, at::kCPU);
  require_observer(ObserverKind::minmax, at::kCUDA);
  OCTET_NEEDS_GPU();
  const Graph graph = network();
  QuantizedModel model = model_of(graph, to_device(test::random_weights(graph, 1), at::kCUDA), ObserverKind::histogram);
  EXPECT_THROW(model.forward(small_batch(0).cuda(), kObserving), Error);
}

}  // namespace
}  // namespace octet
