// SPDX-License-Identifier: Apache-2.0
// Networks under bit plans on the GPU: every weight and every edge has its own codes, as on the CPU.
#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <set>

#include "src/train/model/device.h"
#include "src/train/qat/fake_quantize.h"
#include "tests/cuda/gpu.h"
#include "tests/train/networks.h"

namespace octet {
namespace {

/// One network with a random plan, calibrated on the CPU, as a model on the CPU and one on the GPU.
struct Pair {
  explicit Pair(uint64_t seed)
      : graph(test::random_graph(1000 + seed, /*branches=*/50)),
        weights(test::random_weights(graph, seed)),
        options{.weights = seed % 2 == 0 ? WeightCalibrator::mse : WeightCalibrator::minmax},
        cpu(test::calibrated(graph, weights, test::random_quant(graph, seed), CalibrationMethod::minmax, options)),
        gpu(cpu.prepared(), to_device(weights, at::kCUDA), options) {
    gpu.load_state(cpu.state());
  }
  Graph graph;
  Weights weights;
  QuantizerOptions options;
  QuantizedModel cpu, gpu;
};

TEST(BitPlanCuda, WeightScalesAndWhatIsConvertedAreTheCpus) {
  OCTET_NEEDS_GPU();
  std::set<int> lowest;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Pair pair(seed);
    EXPECT_EQ(pair.cpu.weight_scales(), pair.gpu.weight_scales()) << seed;
    const Preprocessing preprocessing = test::preprocessing_for(pair.graph.nodes[0].shape);
    const Int8Graph a = pair.cpu.convert(preprocessing, {}), b = pair.gpu.convert(preprocessing, {});
    ASSERT_EQ(a.nodes.size(), b.nodes.size());
    for (size_t n = 0; n < a.nodes.size(); ++n) {
      EXPECT_EQ(a.nodes[n].weight, b.nodes[n].weight) << seed << " " << a.nodes[n].name;
      EXPECT_EQ(a.nodes[n].multiplier, b.nodes[n].multiplier) << seed << " " << a.nodes[n].name;
      EXPECT_EQ(a.nodes[n].bias, b.nodes[n].bias) << seed << " " << a.nodes[n].name;
      for (const int8_t code : a.nodes[n].weight) lowest.insert(code);
    }
  }
  EXPECT_TRUE(lowest.count(-2) == 1 && lowest.count(-127) == 1);
}

/// Convolutions read values of the edge's own codes, rounded to the type; float16 holds every one of them.
TEST(BitPlanCuda, EveryEdgeIsOnItsOwnGrid) {
  OCTET_NEEDS_GPU();
  int narrow = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Pair pair(seed);
    const Shape& shape = pair.graph.nodes[0].shape;
    const std::vector<QParams> edges = pair.gpu.edges();
    at::manual_seed(static_cast<int64_t>(seed));
    const at::Tensor x = at::randn({3, shape.c, shape.h, shape.w}).cuda();
    const c10::NoGradGuard no_grad;
    for (const at::ScalarType type : {at::kFloat, at::kHalf}) {
      at::autocast::set_autocast_enabled(at::kCUDA, type != at::kFloat);
      if (type != at::kFloat) at::autocast::set_autocast_dtype(at::kCUDA, type);
      size_t seen = 0;
      pair.gpu.forward(x, {}, [&](int n, const at::Tensor& y) {
        ++seen;
        if (pair.gpu.prepared().float_output(n)) return;
        const at::Tensor stored = y.to(at::kFloat).cpu(), of_a_code = fake_quantize(stored, edges[n]);
        EXPECT_TRUE(at::equal(of_a_code.to(y.scalar_type()).to(at::kFloat), stored)) << seed << " node " << n;
        narrow += edges[n].quant_max - edges[n].quant_min < 15;
      });
      EXPECT_EQ(seen, edges.size());
      at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(at::kCUDA, false);
    }
  }
  EXPECT_GT(narrow, 40);
}

/// The engine whose kernels clamp on the GPU, and the definition.
TEST(BitPlanCuda, EngineCudaGivesTheReferencesBytes) {
  OCTET_NEEDS_GPU();
  constexpr int kBatch = 3;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Pair pair(seed);
    const Shape& shape = pair.graph.nodes[0].shape;
    const Int8Graph int8 = pair.cpu.convert(test::preprocessing_for(shape), {});
    const auto images = test::random_images(shape, kBatch, seed);
    const auto cuda = find_engine("cuda").compile(int8, {.max_batch = kBatch});
    const auto reference = find_engine("reference").compile(int8, {.max_batch = kBatch});
    const auto expected = test::all_bytes(*reference, int8, images, kBatch);
    const auto got = test::all_bytes(*cuda, int8, images, kBatch);
    ASSERT_EQ(got.size(), expected.size()) << "plan " << seed;
    for (const auto& [node, bytes] : expected)
      EXPECT_TRUE(got.at(node) == bytes) << "plan " << seed << " node " << node;
  }
}

}  // namespace
}  // namespace octet
