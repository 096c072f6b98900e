// The promise: the QAT graph, through LibTorch, gives the engines' bytes at every node.
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "tests/qat/networks.h"

namespace octet {
namespace {

using test::all_bytes;

constexpr ActivationScheme kSchemes[] = {ActivationScheme::symmetric_s8, ActivationScheme::unsigned_u8,
                                         ActivationScheme::affine_u8};
constexpr int kBatch = 2;

/// Runs the QAT graph and both engines on the same images; returns the number of bytes compared.
size_t expect_same_bytes(const QuantizedModel& model, const std::vector<uint8_t>& images,
                         const Preprocessing& preprocessing, const std::string& what) {
  const Int8Graph graph = model.convert(preprocessing, {});
  const int classes = graph.classes();
  const auto expected = all_bytes(*qat_graph_program(model, preprocessing), images, kBatch, classes);
  EXPECT_EQ(expected.size(), graph.nodes.size() + 1) << what;
  size_t compared = 0;
  for (const char* engine : {"reference", "cpu"}) {
    const auto program = find_engine(engine).compile(graph, {.max_batch = kBatch, .threads = 2});
    const auto bytes = all_bytes(*program, images, kBatch, classes);
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const std::string &a = expected.at(static_cast<int>(n)), &b = bytes.at(static_cast<int>(n));
      EXPECT_EQ(a.size(), graph.nodes[n].shape.elements() * kBatch * (graph.nodes[n].float_output ? 4u : 1u));
      EXPECT_TRUE(a == b) << what << ", " << engine << ": node " << n << " '" << graph.nodes[n].name
                          << "' differs first at byte "
                          << std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
      compared += a.size();
    }
    EXPECT_TRUE(expected.at(-1) == bytes.at(-1)) << what << ", " << engine << ": logits";
  }
  // Codes that vary, or the comparison says nothing.
  const std::string& codes = expected.at(1);
  EXPECT_GT(std::set<char>(codes.begin(), codes.end()).size(), 2u) << what;
  return compared;
}

ModelSpec family(const std::string& name, int size) {
  ModelSpec spec;
  spec.name = name;
  spec.input = {3, size, size};
  return spec;
}

std::vector<ModelSpec> families() {
  std::vector<ModelSpec> all = {family("small_cnn", 28),    family("resnet8", 32),  family("resnet8", 32),
                                family("resnet18", 33),     family("resnet50", 32), family("mobilenet_v2", 32),
                                family("mobilenet_v2", 64), family("vgg11_bn", 32), family("squeezenet1_1", 64)};
  all[0].input.c = 1;
  all[1].shortcut = 'A';
  all[3].stem = all[4].stem = "imagenet";
  all[5].width = 0.5;
  all[6].width = 0.35;
  all[6].folded = true;
  return all;
}

TEST(QatGraph, EveryByteOfEveryNodeOfEveryFamily) {
  uint64_t seed = 1;
  for (const ModelSpec& spec : families()) {
    const Graph graph = build_model(spec);
    const Weights weights = test::random_weights(graph, seed);
    for (const ActivationScheme scheme : kSchemes) {
      QuantSpec quant;
      quant.activation = scheme;
      const QuantizedModel model = test::calibrated(graph, weights, quant);
      const std::string what = spec.name + " scheme " + std::to_string(static_cast<int>(scheme));
      expect_same_bytes(model, test::random_images(spec.input, kBatch, ++seed), test::preprocessing_for(spec.input),
                        what);
    }
  }
}

TEST(QatGraph, FewBitsAndPerTensorWeights) {
  const Graph graph = build_model(family("resnet8", 32));
  const Weights weights = test::random_weights(graph, 4);
  for (const int bits : {2, 4}) {
    QuantSpec quant;
    quant.activation_bits = quant.weight_bits = bits;
    quant.weight_granularity = Granularity::per_tensor;
    const QuantizedModel model = test::calibrated(graph, weights, quant);
    expect_same_bytes(model, test::random_images({3, 32, 32}, kBatch, bits), test::preprocessing_for({3, 32, 32}),
                      std::to_string(bits) + " bits");
  }
}

/// An activation of its own, adds without a convolution before them, padded average pools, several linears.
TEST(QatGraph, OperatorsNoFamilyHas) {
  ModelSpec spec = family("graph", 12);
  spec.classes = 6;
  spec.graph = {
      {"a", "conv2d", {"input"}, {{"out_channels", 20}, {"kernel", 3}, {"pad", 1}}},
      {"r", "relu6", {"a"}, {}},
      {"m", "max_pool", {"a"}, {{"kernel", 3}, {"stride", 1}, {"pad", 1}}},
      {"s", "add", {"r", "m"}, {}},
      {"p", "avg_pool", {"s"}, {{"kernel", 3}, {"stride", 2}, {"pad", 1}}},
      {"g", "conv2d", {"p"}, {{"out_channels", 10}, {"kernel", 3}, {"dilation", 2}, {"pad", 2}, {"groups", 5}}},
      {"c", "concat", {"g", "p"}, {}},
      {"q", "relu", {"c"}, {}},
      {"f", "flatten", {"q"}, {}},
      {"l1", "linear", {"f"}, {{"out_channels", 17}}},
      {"l1r", "relu", {"l1"}, {}},
      {"l2", "linear", {"l1r"}, {{"out_channels", 6}}},
  };
  const Graph graph = build_model(spec);
  const Weights weights = test::random_weights(graph, 4);
  for (const ActivationScheme scheme : kSchemes) {
    QuantSpec quant;
    quant.activation = scheme;
    expect_same_bytes(test::calibrated(graph, weights, quant), test::random_images(spec.input, kBatch, 8),
                      test::preprocessing_for(spec.input), "operators");
  }
}

/// Large weights over many inputs: sums past 2^24, where only float64 stays exact.
TEST(QatGraph, SumsPastFloat32) {
  ModelSpec spec = family("graph", 5);
  spec.input.c = 600;
  spec.classes = 4;
  spec.graph = {{"a", "conv2d", {"input"}, {{"out_channels", 8}, {"kernel", 3}, {"pad", 1}}},
                {"g", "global_avg_pool", {}, {}},
                {"f", "flatten", {}, {}},
                {"l", "linear", {}, {{"out_channels", 4}}}};
  const Graph graph = build_model(spec);
  Weights weights = initial_weights(graph, 1);
  {
    const c10::NoGradGuard no_grad;
    weights.at("a.weight").uniform_(0.3, 0.5, at::detail::createCPUGenerator(1));
    weights.at("a.weight")[4].mul_(-1);
  }
  const QuantizedModel model = test::calibrated(graph, weights, {});
  const Preprocessing preprocessing = test::preprocessing_for(spec.input);
  EXPECT_EQ(qat_graph_program(model, preprocessing)->layers()[1].kernel, "aten_conv2d_f64");
  EXPECT_EQ(qat_graph_program(model, preprocessing)->layers().back().kernel, "aten_linear_f32");
  expect_same_bytes(model, test::random_images(spec.input, kBatch, 8), preprocessing, "large sums");
}

TEST(QatGraph, SimulationIsNearAndCountsItsDifference) {
  const ModelSpec spec = family("resnet8", 32);
  const Graph graph = build_model(spec);
  const QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 9), {});
  const Preprocessing preprocessing = test::preprocessing_for(spec.input);
  const auto images = test::random_images(spec.input, kBatch, 3);
  const auto exact = all_bytes(*qat_graph_program(model, preprocessing), images, kBatch, 10);
  const auto simulated = all_bytes(*simulation_program(model, preprocessing), images, kBatch, 10);
  EXPECT_TRUE(exact.at(0) == simulated.at(0));  // the same quantizer on the same numbers
  const int last = static_cast<int>(model.prepared().graph.nodes.size()) - 1;
  for (int n = 0; n < last; ++n) {
    const std::string &a = exact.at(n), &b = simulated.at(n);
    ASSERT_EQ(a.size(), b.size());
    size_t far = 0;
    for (size_t i = 0; i < a.size(); ++i) far += std::abs(static_cast<uint8_t>(a[i]) - static_cast<uint8_t>(b[i])) > 1;
    EXPECT_EQ(far, 0u) << n;
  }
  float a[10 * kBatch], b[10 * kBatch];
  std::memcpy(a, exact.at(-1).data(), sizeof a);
  std::memcpy(b, simulated.at(-1).data(), sizeof b);
  for (int i = 0; i < 10 * kBatch; ++i) EXPECT_NEAR(a[i], b[i], 0.02f * (1 + std::abs(a[i])));
}

}  // namespace
}  // namespace octet
