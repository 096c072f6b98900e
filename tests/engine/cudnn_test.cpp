// SPDX-License-Identifier: Apache-2.0
// The cudnn engine against the reference: how many codes differ and by how much; what it refuses; mixing with cuda.
#include <gtest/gtest.h>

#include <algorithm>

#include "src/base/error.h"
#include "src/engine/engine.h"
#include "src/engine/support.h"
#include "src/net/zoo.h"
#include "src/quant/convert.h"
#include "tests/cuda/gpu.h"
#include "tests/engine/cudnn_networks.h"
#include "tests/engine/random_network.h"

namespace octet::test {
namespace {

#define OCTET_NEEDS_CUDNN() \
  OCTET_NEEDS_GPU();        \
  if (const Support cudnn = find_engine("cudnn").available(); !cudnn.ok) GTEST_SKIP() << cudnn.reason

const CompileOptions kMixed{.max_batch = 2, .kernels = "heuristic", .fallback = "cuda"};

/// cuDNN promises no order of float operations. If it rounds the product with the multiplier before it adds the bias,
/// where the rule has one fma, a value of about 100 moves by up to 4e-6 and rounds to the other side of a tie for 1e-5
/// of all codes, by one LSB. (cuDNN 9.19 on an H200 differed in none of 2.8 million: its compiler fuses, too.)
constexpr double kLargestShare = 1e-4;

void expect_close(const LayerDifference& found) {
  EXPECT_LE(found.largest, 1);
  EXPECT_LE(static_cast<double>(found.differing), kLargestShare * static_cast<double>(found.codes));
}

TEST(Cudnn, LayersOfRandomNetworksDifferByOneAtMost) {
  OCTET_NEEDS_CUDNN();
  for (const uint64_t seed : test_seeds(1, 8)) {
    SCOPED_TRACE(seed);
    const Int8Graph graph = residual_network(seed);
    const auto [shown, found] = run_peer("cudnn", kMixed, graph, seed);
    expect_close(found);
    EXPECT_EQ(shown.outputs.at(0), logits_of_last_codes(graph, shown, 2)) << "int32 sums of a linear are exact";
  }
}

TEST(Cudnn, EveryGpuHasItsOwnHandlesAndPlans) {
  OCTET_NEEDS_CUDNN();
  OCTET_NEEDS_GPUS(2);
  for (const int gpu : {1, 0}) {
    SCOPED_TRACE(gpu);
    CompileOptions options = kMixed;
    options.gpu = gpu;
    const Int8Graph graph = residual_network(4);
    const auto [shown, found] = run_peer("cudnn", options, graph, 4);
    expect_close(found);
    EXPECT_EQ(shown.outputs.at(0), logits_of_last_codes(graph, shown, 2)) << "cuBLASLt";
  }
}

class CudnnZoo : public testing::TestWithParam<const char*> {};

TEST_P(CudnnZoo, LayersDifferByOneAtMost) {
  OCTET_NEEDS_CUDNN();
  expect_close(run_peer("cudnn", kMixed, zoo_network(GetParam(), 64, 1), 1).found);
}

INSTANTIATE_TEST_SUITE_P(Models, CudnnZoo, testing::Values("resnet18", "resnet50"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Cudnn, TheFastestPlanComputesTheSame) {
  OCTET_NEEDS_CUDNN();
  const Int8Graph graph = residual_network(3);
  const std::vector<uint8_t> images = random_images(graph, 2, 3);
  const auto program = find_engine("cudnn").compile(graph, {.max_batch = 2, .fallback = "cuda"});
  expect_close(layer_difference(graph, trace(*program, graph, images, 2), 2));
  const std::vector<LayerInfo> layers = program->layers();
  EXPECT_TRUE(std::any_of(layers.begin(), layers.end(), [](const LayerInfo& layer) {
    return layer.kernel.find("fastest of ") != std::string::npos;
  })) << "no layer had a choice";
}

TEST(Cudnn, ReportSaysWhichEngineRanWhat) {
  OCTET_NEEDS_CUDNN();
  const Int8Graph graph = residual_network(1);
  const auto program = find_engine("cudnn").compile(graph, kMixed);
  const std::vector<LayerInfo> layers = program->layers();
  ASSERT_EQ(layers.size(), graph.nodes.size());
  for (size_t node = 0; node < layers.size(); ++node) {
    const bool cudnn = layers[node].kernel.starts_with("cudnn_conv "), lt = layers[node].kernel.starts_with("cublaslt");
    EXPECT_EQ(cudnn, graph.nodes[node].op == Int8Op::conv2d) << layers[node].kernel;
    EXPECT_EQ(layers[node].engine, cudnn || lt ? "cudnn" : "cuda");
    EXPECT_EQ(lt, graph.nodes[node].op == Int8Op::linear) << layers[node].kernel;
  }
}

TEST(Cudnn, OtherBatchSizesGiveTheSameLogits) {
  OCTET_NEEDS_CUDNN();
  const Int8Graph graph = residual_network(2);
  const auto program =
      find_engine("cudnn").compile(graph, {.max_batch = 3, .kernels = "heuristic", .fallback = "cuda"});
  const std::vector<uint8_t> images = random_images(graph, 3, 2);
  std::vector<float> together(3 * graph.classes()), one(graph.classes());
  program->run(images.data(), 3, together.data());
  program->run(images.data(), 1, one.data());  // its own plans: codes may differ by an LSB here and there
  const float reach =
      *std::max_element(together.begin(), together.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
  for (int k = 0; k < graph.classes(); ++k) EXPECT_NEAR(one[k], together[k], 0.05 * std::abs(reach));
}

TEST(Cudnn, RefusesWithoutAFallbackAndNamesTheNode) {
  OCTET_NEEDS_CUDNN();
  expect_needs_fallback("cudnn");
}

TEST(Cudnn, UnknownOptionsAreRefused) { expect_refuses_unknown_options("cudnn"); }

Int8Graph resnet18_of(ActivationScheme scheme) {
  return random_int8_graph(build_model({.name = "resnet18", .input = {3, 64, 64}}), {.activation = scheme}, 1);
}

/// As on a machine with a GPU and cuDNN.
class UsableCudnn final : public Engine {
 public:
  std::string_view name() const override { return "cudnn"; }
  Support available() const override { return {true, ""}; }
  Support supports(const Int8Graph& graph, int node) const override {
    return find_engine("cudnn").supports(graph, node);
  }
  std::unique_ptr<Program> compile(const Int8Graph&, const CompileOptions&) const override { return nullptr; }
};

TEST(Cudnn, NothingRunsUnderItsNameThatIsAllTheFallbacks) {
  const Fallback cuda{&find_engine("cuda"), ""};
  EXPECT_NO_THROW(check_compile(UsableCudnn(), resnet18_of(ActivationScheme::symmetric_s8), {}, cuda));
  for (const auto scheme : {ActivationScheme::unsigned_u8, ActivationScheme::affine_u8}) {
    try {
      check_compile(UsableCudnn(), resnet18_of(scheme), {}, cuda);
      FAIL() << "a network of engine cuda";
    } catch (const Error& error) {
      const std::string what = error.what();
      for (const char* part : {"cudnn runs no node of resnet18", "'conv1'", "uint8 codes", "symmetric_s8"})
        EXPECT_NE(what.find(part), std::string::npos) << what;
    }
  }
}

TEST(Cudnn, CompilesNoNetworkThatIsAllTheFallbacks) {
  OCTET_NEEDS_CUDNN();
  EXPECT_THROW(find_engine("cudnn").compile(resnet18_of(ActivationScheme::affine_u8), kMixed), Error);
}

TEST(Cudnn, NeedsAGpu) { EXPECT_TRUE(find_engine("cudnn").on_gpu()); }

TEST(Cudnn, SupportsNamesReasons) {
  const Int8Graph symmetric = zoo_network("resnet18", 64, 1);
  EXPECT_EQ(reason("cudnn", symmetric, "conv1"),
            "C=3: cuDNN has no tensor-core int8 kernel for pixels of fewer than 16 bytes");
  EXPECT_EQ(reason("cudnn", symmetric, "layer1.0.conv1"), "");
  EXPECT_EQ(reason("cudnn", symmetric, "layer1.0.conv2"), "");
  EXPECT_EQ(reason("cudnn", symmetric, "fc"), "");
  EXPECT_EQ(reason("cudnn", symmetric, "maxpool"), "max_pool: cuDNN runs conv2d and linear here");

  EXPECT_NE(reason("cudnn", resnet18_of(ActivationScheme::affine_u8), "layer1.0.conv1").find("uint8 codes"),
            std::string::npos);

  const Int8Graph mobile = zoo_network("mobilenet_v2", 64, 1);
  const auto grouped =
      std::find_if(mobile.nodes.begin(), mobile.nodes.end(), [](const Int8Node& n) { return n.groups > 1; });
  EXPECT_NE(reason("cudnn", mobile, grouped->name).find("groups=32"), std::string::npos);
}

}  // namespace
}  // namespace octet::test
