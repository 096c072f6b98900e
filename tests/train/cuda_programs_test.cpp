// SPDX-License-Identifier: Apache-2.0
// The programs over LibTorch on the GPU: the QAT graph gives the CPU's and the reference engine's bytes at every node.
#include <ATen/Functions.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "src/base/error.h"
#include "src/cuda/memory.h"
#include "src/train/model/device.h"
#include "src/train/proof/exact_operators.h"
#include "src/train/repair/quantization_noise.h"
#include "tests/cuda/gpu.h"
#include "tests/train/convolutions.h"
#include "tests/train/networks.h"

namespace octet {
namespace {

using test::all_bytes;

const at::Device kGpu(at::kCUDA, 0);
constexpr ActivationScheme kSchemes[] = {ActivationScheme::symmetric_s8, ActivationScheme::unsigned_u8,
                                         ActivationScheme::affine_u8};

/// Returns the same model with its weights on the GPU.
QuantizedModel on_gpu(const QuantizedModel& model) {
  QuantizedModel moved(model.prepared(), to_device(model.weights(), kGpu), {.averaging = 0.01});
  moved.load_state(model.state());
  return moved;
}

void expect_same(const std::map<int, std::string>& expected, const std::map<int, std::string>& found,
                 const std::string& what) {
  ASSERT_EQ(expected.size(), found.size()) << what;
  for (const auto& [node, bytes] : expected) {
    const std::string& other = found.at(node);
    EXPECT_TRUE(bytes == other) << what << ": node " << node << " differs first at byte "
                                << std::mismatch(bytes.begin(), bytes.end(), other.begin(), other.end()).first -
                                       bytes.begin();
  }
}

/// Compares GPU, CPU and reference engine on the same images.
void expect_same_bytes(const Graph& graph, const Weights& weights, const QuantSpec& quant, const std::string& what,
                       const std::vector<int>& batches = {1, 7}, size_t fewest_codes = 2) {
  const QuantizedModel model = test::calibrated(graph, weights, quant);
  const Shape& shape = graph.nodes[0].shape;
  const Preprocessing preprocessing = test::preprocessing_for(shape);
  const Int8Graph int8 = model.convert(preprocessing, {});
  const auto cpu = qat_graph_program(model, preprocessing), gpu = qat_graph_program(on_gpu(model), preprocessing);
  for (const int batch : batches) {
    const auto images = test::random_images(shape, batch, batch);
    const auto reference = find_engine("reference").compile(int8, {.max_batch = batch});
    const std::string which = what + ", batch " + std::to_string(batch);
    const auto expected = all_bytes(*cpu, int8, images, batch);
    expect_same(expected, all_bytes(*gpu, int8, images, batch), which + ", CPU");
    expect_same(expected, all_bytes(*reference, int8, images, batch), which + ", reference");
    const std::string& codes = expected.at(1);
    EXPECT_GT(std::set<char>(codes.begin(), codes.end()).size(), fewest_codes) << which;  // or this says nothing
  }
}

TEST(CudaQatGraph, EveryByteOfEveryFamily) {
  OCTET_NEEDS_GPU();
  uint64_t seed = 1;
  for (const ModelSpec& spec : test::families()) {
    const Graph graph = build_model(spec);
    const Weights weights = test::random_weights(graph, ++seed);
    for (const ActivationScheme scheme : kSchemes) {
      QuantSpec quant;
      quant.activation = scheme;
      expect_same_bytes(graph, weights, quant, spec.name + " scheme " + std::to_string(static_cast<int>(scheme)),
                        {scheme == ActivationScheme::affine_u8 ? 7 : 1});
    }
  }
}

TEST(CudaQatGraph, EveryByteOfRandomNetworks) {
  OCTET_NEEDS_GPU();
  for (uint64_t seed = 0; seed < 90; ++seed) {
    const Graph graph = test::random_graph(seed);
    QuantSpec quant;
    quant.activation = kSchemes[seed % 3];
    expect_same_bytes(graph, test::random_weights(graph, seed), quant, "seed " + std::to_string(seed));
  }
  const Graph graph = build_model(test::other_operators());
  for (const ActivationScheme scheme : kSchemes) {
    QuantSpec quant = uniform_bits(5, 5);
    quant.activation = scheme;
    quant.weight_granularity = Granularity::per_tensor;
    expect_same_bytes(graph, test::random_weights(graph, 4), quant, "operators");
  }
}

TEST(CudaQatGraph, EveryByteOfRandomBitPlans) {
  OCTET_NEEDS_GPU();
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Graph graph = test::random_graph(1000 + seed, /*branches=*/50);
    expect_same_bytes(graph, test::random_weights(graph, seed), test::random_quant(graph, seed),
                      "plan " + std::to_string(seed), {3}, 1);
  }
}

TEST(CudaQatGraph, SumsPastFloat32) {
  OCTET_NEEDS_GPU();
  for (const int groups : {1, 2, 0}) {
    const Graph graph = test::large_sums(groups);
    expect_same_bytes(graph, test::large_weights(graph), {}, "large sums, groups " + std::to_string(groups));
  }
}

/// With TF32 allowed by the recipe, as in training: the programs switch it off and on again.
TEST(CudaQatGraph, TheRecipesPrecisionDoesNotMatter) {
  OCTET_NEEDS_GPU();
  at::Context& context = at::globalContext();
  context.setAllowTF32CuDNN(true);
  context.setAllowTF32CuBLAS(true);
  const Graph graph = build_model(test::family("resnet8", 32));
  const Weights weights = test::random_weights(graph, 4);
  expect_same_bytes(graph, weights, {}, "TF32 allowed");

  const Preprocessing preprocessing = test::preprocessing_for({3, 32, 32});
  const auto images = test::random_images({3, 32, 32}, 7, 1);
  std::vector<float> expected(70), found(70);
  float_program(graph, weights, preprocessing)->run(images.data(), 7, expected.data());
  float_program(graph, to_device(weights, kGpu), preprocessing)->run(images.data(), 7, found.data());
  // float32 through nine layers of at most 576 inputs: see WalksEveryNetworkInFullFloat32 in cuda_model_test.cpp.
  for (int i = 0; i < 70; ++i) EXPECT_NEAR(expected[i], found[i], 1e-4f * (1 + std::abs(expected[i]))) << i;
  EXPECT_EQ(context.float32Precision(at::Float32Backend::CUDA, at::Float32Op::CONV), at::Float32Precision::TF32);
  EXPECT_EQ(context.float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL), at::Float32Precision::TF32);
  context.setAllowTF32CuBLAS(false);
}

/// Counts how the simulation's codes differ from the QAT graph's.
struct Distance {
  size_t differing = 0;  // at all nodes but the last
  int first_layer = 0;   // largest distance of codes at the first node behind the input
};

Distance distance(const QuantizedModel& model, const std::vector<uint8_t>& images, int batch) {
  const Preprocessing preprocessing = test::preprocessing_for({3, 32, 32});
  const Int8Graph int8 = model.convert(preprocessing, {});
  const auto exact = all_bytes(*qat_graph_program(model, preprocessing), int8, images, batch);
  const auto simulated = all_bytes(*simulation_program(model, preprocessing), int8, images, batch);
  EXPECT_EQ(exact.size(), simulated.size());
  EXPECT_TRUE(exact.at(0) == simulated.at(0)) << "the input";
  Distance found;
  const int last = static_cast<int>(model.prepared().graph.nodes.size()) - 1;
  for (int n = 1; n < last; ++n) {
    const std::string &a = exact.at(n), &b = simulated.at(n);
    EXPECT_EQ(a.size(), b.size());
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      const int off = std::abs(static_cast<uint8_t>(a[i]) - static_cast<uint8_t>(b[i]));
      found.differing += off > 0;
      if (n == 1) found.first_layer = std::max(found.first_layer, off);
    }
  }
  return found;
}

/// The simulation rounds sums in float32, so that a code next to a tie may fall on its other side: by one where the
/// codes read are the same, further on by what the layers before were off. On the GPU no more often than on the CPU.
TEST(CudaSimulation, IsAsNearTheQatGraphAsTheCpus) {
  OCTET_NEEDS_GPU();
  const Graph graph = build_model(test::family("resnet8", 32));
  const QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 4), {});
  const auto images = test::random_images({3, 32, 32}, 7, 3);
  const Distance cpu = distance(model, images, 7), gpu = distance(on_gpu(model), images, 7);
  EXPECT_LE(gpu.first_layer, 1);
  EXPECT_GT(cpu.differing, 0u);
  EXPECT_LE(gpu.differing, 2 * cpu.differing);  // both are counts of rare ties
}

TEST(CudaLayerStatistics, AreTheCpus) {
  OCTET_NEEDS_GPU();
  const Graph graph = build_model(test::family("resnet8", 32));
  const QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 9), {});
  const auto pixels = test::random_images({3, 32, 32}, 16, 3);
  const Preprocessing p = test::preprocessing_for({3, 32, 32});
  const Images inputs{pixels.data(), 16, {3, 32, 32}};
  const auto cpu = layer_statistics(model, images_to_tensor(inputs, p.mean, p.std, at::kCPU));
  const auto gpu = layer_statistics(on_gpu(model), images_to_tensor(inputs, p.mean, p.std, kGpu));
  ASSERT_EQ(cpu.size(), gpu.size());
  for (size_t n = 0; n < cpu.size(); ++n) {
    EXPECT_EQ(cpu[n].qparams, gpu[n].qparams) << cpu[n].name;
    EXPECT_EQ(cpu[n].weights.counts, gpu[n].weights.counts) << cpu[n].name;
    EXPECT_EQ(cpu[n].weight_sqnr_db, gpu[n].weight_sqnr_db) << cpu[n].name;
    EXPECT_NEAR(cpu[n].activations.hi, gpu[n].activations.hi, 1e-4 * (1 + std::abs(cpu[n].activations.hi)));
    EXPECT_NEAR(cpu[n].sqnr_db, gpu[n].sqnr_db, 0.05) << cpu[n].name;  // codes next to a tie fall either way
  }
}

/// The GPU is full but for 64 MB; the programs say what to change, and run again when there is room.
TEST(CudaQatGraph, OutOfMemoryNamesTheCure) {
  OCTET_NEEDS_GPU();
  const Graph graph = build_model(test::family("resnet8", 32));
  const QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 4), {});
  const Preprocessing preprocessing = test::preprocessing_for({3, 32, 32});
  constexpr int kBatch = 4096;
  const auto images = test::random_images({3, 32, 32}, kBatch, 1);
  std::vector<float> logits(kBatch * 10), expected(kBatch * 10);
  const auto program = qat_graph_program(on_gpu(model), preprocessing);
  program->run(images.data(), kBatch, expected.data());
  {
    c10::cuda::CUDACachingAllocator::emptyCache();
    std::vector<DeviceBuffer> filling;
    for (size_t bytes = gpu_status().memory_bytes; bytes > (size_t{64} << 20);) try {
        filling.emplace_back(bytes, "a test");
      } catch (const Error&) {
        bytes /= 2;
      }
    try {
      program->run(images.data(), kBatch, logits.data());
      FAIL() << "4096 images in 64 MB";
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find("the QAT graph: 4096 images at once do not fit on the GPU"), std::string::npos) << what;
      EXPECT_NE(what.find("evaluate.batch_size"), std::string::npos) << what;
    }
  }
  program->run(images.data(), kBatch, logits.data());
  EXPECT_EQ(logits, expected);
}

TEST(CudaExactConv2d, EverySum) {
  OCTET_NEEDS_GPU();
  const FullPrecision full_precision;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    const test::Convolution c = test::random_convolution(seed);
    const at::Tensor expected = test::sums_of(c), x = c.x.to(kGpu);
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      const at::Tensor weight = c.weight.to(kGpu, type);
      for (const auto convolve : {exact_conv2d, column_conv2d}) {
        const at::Tensor sums = convolve(x, weight, c.window, c.groups);
        EXPECT_EQ(sums.scalar_type(), type);
        EXPECT_TRUE(at::equal(sums.to(at::kLong).cpu(), expected)) << seed;
      }
    }
  }
}

TEST(CudaExactConv2d, SumsThatFloat32CannotHold) {
  OCTET_NEEDS_GPU();
  const FullPrecision full_precision;
  for (const int groups : {1, 3}) {
    const test::Convolution c = test::large_convolution(groups);
    const at::Tensor expected = test::sums_of(c), weight = c.weight.to(kGpu, exact_type(c.weight, 255));
    const at::Tensor sums = exact_conv2d(c.x.to(kGpu), weight, c.window, groups);
    EXPECT_TRUE(at::equal(sums.to(at::kLong).cpu(), expected)) << groups;
  }
}

/// More images than column_conv2d copies at once, and large products, compared with integer sums on the GPU.
TEST(CudaExactConv2d, ManyImagesInParts) {
  OCTET_NEEDS_GPU();
  const FullPrecision full_precision;
  at::manual_seed(1);
  const at::Tensor x = at::randint(0, 256, {400, 64, 56, 56}, at::TensorOptions(at::kFloat).device(kGpu));
  const at::Tensor weight = at::randint(-127, 128, {64, 64, 3, 3}, at::TensorOptions(at::kFloat).device(kGpu));
  const Window window{3, 3, 1, 1, {1, 1}};
  const at::Tensor sums = exact_conv2d(x, weight.to(at::kDouble), window, 1);
  for (const int64_t image : {0, 1, 70, 150, 399}) {
    const at::Tensor alone = exact_conv2d(x.slice(0, image, image + 1), weight.to(at::kDouble), window, 1);
    EXPECT_TRUE(at::equal(sums.slice(0, image, image + 1), alone)) << image;
  }
  EXPECT_EQ(sums.sum().item<double>(),
            exact_conv2d(x.to(kGpu), weight.sum(0, true).to(at::kDouble), window, 1).sum().item<double>());
}

/// Every sum from -2^24 to 2^24 in steps, with multipliers that make ties, against the CPU's loops.
TEST(CudaRequantize, TheCpusCodes) {
  OCTET_NEEDS_GPU();
  const int64_t rows = 4099, channels = 24;
  const at::Tensor acc =
      at::arange(rows * channels, at::kDouble).sub(rows * channels / 2).mul(341).view({rows, channels, 1, 1});
  const at::Tensor residual = at::randint(-255, 256, {rows, channels, 1, 1}, at::kFloat);
  for (const kernels::Rounding rounding :
       {kernels::Rounding{0, -128, 127}, {0, 0, 255}, {119, 119, 240}, {0, 0, 0, true}}) {
    RequantizeRule cpu{at::rand({channels}).mul(1e-5), at::randn({channels}), 0.37f, rounding};
    cpu.multiplier[3] = 0.5f;
    cpu.bias[3] = 0.0f;
    RequantizeRule gpu = cpu;
    gpu.multiplier = cpu.multiplier.to(kGpu);
    gpu.bias = cpu.bias.to(kGpu);
    for (const at::ScalarType type : {at::kFloat, at::kDouble})
      for (const at::Tensor& r : {at::Tensor(), residual}) {
        if (r.defined() && rounding.float_output) continue;  // logits have no residual
        const at::Tensor there = r.defined() ? r.to(kGpu) : r;
        EXPECT_TRUE(at::equal(requantize(cpu, acc.to(type), r), requantize(gpu, acc.to(kGpu, type), there).cpu()));
      }
    const at::Tensor x = acc.to(at::kFloat);
    EXPECT_TRUE(at::equal(rescale_codes({0.0123f, rounding}, x), rescale_codes({0.0123f, rounding}, x.to(kGpu)).cpu()));
    if (rounding.float_output) continue;
    const at::Tensor sum = add_codes({0.5f, 1.5f, rounding}, residual, residual.flip(0));
    EXPECT_TRUE(at::equal(sum, add_codes({0.5f, 1.5f, rounding}, residual.to(kGpu), residual.flip(0).to(kGpu)).cpu()));
    EXPECT_TRUE(at::equal(store_codes(rounding.zero_point, sum), store_codes(rounding.zero_point, sum.to(kGpu)).cpu()));
    const QParams q{0.25f, rounding.zero_point, rounding.lo, rounding.hi};
    const at::Tensor reals = residual.mul(0.125);
    EXPECT_TRUE(at::equal(quantize_values(q, reals), quantize_values(q, reals.to(kGpu)).cpu()));
  }
}

}  // namespace
}  // namespace octet
