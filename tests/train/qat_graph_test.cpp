// SPDX-License-Identifier: Apache-2.0
// The promise: the QAT graph, through LibTorch, gives the engines' bytes at every node.
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "src/quant/equalize.h"
#include "src/quant/plan.h"
#include "src/train/model/device.h"
#include "src/train/qat/quantized_model.h"
#include "src/train/repair/correct_biases.h"
#include "tests/train/networks.h"

namespace octet {
namespace {

using test::all_bytes;

constexpr ActivationScheme kSchemes[] = {ActivationScheme::symmetric_s8, ActivationScheme::unsigned_u8,
                                         ActivationScheme::affine_u8};
constexpr int kBatch = 2;

/// Runs the QAT graph and both engines on the same images; returns the number of bytes compared.
size_t expect_same_bytes(const QuantizedModel& model, const std::vector<uint8_t>& images,
                         const Preprocessing& preprocessing, const std::string& what, size_t fewest_codes = 2) {
  const Int8Graph graph = model.convert(preprocessing, {});
  const auto expected = all_bytes(*qat_graph_program(model, preprocessing), graph, images, kBatch);
  EXPECT_EQ(expected.size(), graph.nodes.size() + graph.outputs.size()) << what;
  size_t compared = 0;
  for (const char* engine : {"reference", "cpu"}) {
    const auto program = find_engine(engine).compile(graph, {.max_batch = kBatch, .threads = 2});
    const auto bytes = all_bytes(*program, graph, images, kBatch);
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const std::string &a = expected.at(static_cast<int>(n)), &b = bytes.at(static_cast<int>(n));
      EXPECT_EQ(a.size(), graph.nodes[n].image_bytes() * kBatch);
      EXPECT_TRUE(a == b) << what << ", " << engine << ": node " << n << " '" << graph.nodes[n].name
                          << "' differs first at byte "
                          << std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
      compared += a.size();
    }
    for (int i = 0; i < static_cast<int>(graph.outputs.size()); ++i) {
      EXPECT_TRUE(expected.at(-1 - i) == bytes.at(-1 - i)) << what << ", " << engine << ": output " << i;
      EXPECT_TRUE(bytes.at(-1 - i) == bytes.at(graph.outputs[i])) << what << ", " << engine << ": output " << i;
    }
  }
  // If codes did not vary, the comparison would show nothing.
  const std::string& codes = expected.at(1);
  EXPECT_GT(std::set<char>(codes.begin(), codes.end()).size(), fewest_codes) << what;
  return compared;
}

TEST(QatGraph, EveryByteOfEveryNodeOfEveryFamily) {
  uint64_t seed = 1;
  for (const ModelSpec& spec : test::families()) {
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
  const Graph graph = build_model(test::family("resnet8", 32));
  const Weights weights = test::random_weights(graph, 4);
  for (const int bits : {2, 4}) {
    QuantSpec quant = uniform_bits(bits, bits);
    quant.weight_granularity = Granularity::per_tensor;
    const QuantizedModel model = test::calibrated(graph, weights, quant);
    expect_same_bytes(model, test::random_images({3, 32, 32}, kBatch, bits), test::preprocessing_for({3, 32, 32}),
                      std::to_string(bits) + " bits");
  }
}

TEST(QatGraph, OperatorsNoFamilyHas) {
  const ModelSpec spec = test::other_operators();
  const Graph graph = build_model(spec);
  const Weights weights = test::random_weights(graph, 4);
  for (const ActivationScheme scheme : kSchemes) {
    QuantSpec quant;
    quant.activation = scheme;
    expect_same_bytes(test::calibrated(graph, weights, quant), test::random_images(spec.input, kBatch, 8),
                      test::preprocessing_for(spec.input), "operators");
  }
}

TEST(QatGraph, ALastConvolutionAddsItsResidual) {
  const Graph graph = test::residual_logits();
  const Weights weights = test::random_weights(graph, 4);
  const Shape& shape = graph.nodes[0].shape;
  for (const ActivationScheme scheme : kSchemes) {
    QuantSpec quant;
    quant.activation = scheme;
    const QuantizedModel model = test::calibrated(graph, weights, quant);
    ASSERT_EQ(model.prepared().graph.nodes.back().inputs.size(), 2u);  // fuse gave it the add
    expect_same_bytes(model, test::random_images(shape, kBatch, 8), test::preprocessing_for(shape),
                      "residual and logits, scheme " + std::to_string(static_cast<int>(scheme)));
  }
}

TEST(QatGraph, RandomNetworks) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const Graph graph = test::random_graph(seed);
    QuantSpec quant;
    quant.activation = kSchemes[seed % 3];
    const Shape& shape = graph.nodes[0].shape;
    expect_same_bytes(test::calibrated(graph, test::random_weights(graph, seed), quant),
                      test::random_images(shape, kBatch, seed), test::preprocessing_for(shape),
                      "seed " + std::to_string(seed));
  }
}

/// Returns whether at least one layer can be 2:4 sparse.
bool can_be_sparse(const Graph& graph) {
  const Graph fused = fuse(graph);
  const std::vector<std::string> reasons = dense_reasons(fused);
  for (size_t n = 0; n < reasons.size(); ++n)
    if (has_weight(fused.nodes[n].op) && reasons[n].empty()) return true;
  return false;
}

/// Random networks with random bit plans and 2:4 masks: every width, wide residual streams, single layers, [-2, 1] and
/// so on; three fifths with scales and offsets that training might have left anywhere.
TEST(QatGraph, RandomNetworksWithRandomBitPlans) {
  constexpr uint64_t kNetworks = 300;
  constexpr QuantizerOptions kRules[] = {{.weights = WeightCalibrator::mse},
                                         {.weights = WeightCalibrator::minmax},
                                         {.weights = WeightCalibrator::lsq, .edges = EdgeScales::lsq},
                                         {.weights = WeightCalibrator::mse, .edges = EdgeScales::lsq},
                                         {.weights = WeightCalibrator::lsq, .edges = EdgeScales::lsq_plus}};
  int inserted = 0, full = 0, narrow_weights = 0, learned = 0, sparse = 0, offsets = 0;
  size_t compared = 0;
  for (uint64_t seed = 0; seed < kNetworks; ++seed) {
    const Graph graph = test::random_graph(1000 + seed, /*branches=*/50);
    QuantSpec quant = test::random_quant(graph, seed);
    if (seed % 2 == 1 && can_be_sparse(graph)) quant.sparsity = Sparsity::two_of_four;
    const Shape& shape = graph.nodes[0].shape;
    const CalibrationMethod method = seed % 2 == 0 ? CalibrationMethod::minmax : CalibrationMethod::mse;
    const bool has_offsets = seed % 5 == 4;
    if (has_offsets) quant.activation = ActivationScheme::affine_u8;
    offsets += has_offsets;
    const QuantizedModel model =
        test::calibrated(graph, test::random_weights(graph, seed), quant, method, kRules[seed % 5]);
    learned += test::learn_at_random(model, seed);
    const std::vector<uint8_t> images = test::random_images(shape, kBatch, seed);
    compared += expect_same_bytes(model, images, test::preprocessing_for(shape), "seed " + std::to_string(seed), 1);
    for (const Int8Node& node : model.convert(test::preprocessing_for(shape), {}).nodes) {
      inserted += node.name.find(".requantize") != std::string::npos;
      const auto lowest = std::min_element(node.weight.begin(), node.weight.end());
      full += lowest != node.weight.end() && *lowest == -2;
      narrow_weights += lowest != node.weight.end() && *lowest > -64;
      sparse += node.two_of_four;
    }
  }
  EXPECT_GT(inserted, 60);  // or this says nothing about them
  EXPECT_GT(full, 15);
  EXPECT_GT(narrow_weights, 300);
  EXPECT_EQ(learned, 180);
  EXPECT_EQ(offsets, 60);
  EXPECT_GT(sparse, 100);
  RecordProperty("codes", static_cast<int>(compared));
}

/// Networks that were repaired after training run as they were repaired.
TEST(QatGraph, RandomNetworksEqualizedAndCorrected) {
  constexpr uint64_t kNetworks = 150;
  int pairs = 0, corrected = 0;
  for (uint64_t seed = 0; seed < kNetworks; ++seed) {
    Graph graph = fuse(test::random_graph(3000 + seed, /*branches=*/30));
    const Shape& shape = graph.nodes[0].shape;
    const Weights weights = test::random_weights(graph, seed);
    if (!layer_pairs(graph).empty()) {
      graph = equalizable(std::move(graph));
      pairs += static_cast<int>(layer_pairs(graph).size());
      FloatParams params = float_params(weights);
      equalize(graph, params);
      set_float_params(weights, params);
    }
    const Preprocessing preprocessing = test::preprocessing_for(shape);
    QuantizedModel model = test::calibrated(graph, weights, test::random_quant(graph, seed));
    const std::vector<uint8_t> images = test::random_images(shape, kBatch, seed);
    const at::Tensor x = images_to_tensor({images.data(), kBatch, shape}, preprocessing.mean, preprocessing.std);
    const std::vector<Node>& nodes = model.prepared().graph.nodes;
    if (std::none_of(nodes.begin(), nodes.end(),
                     [](const Node& node) { return has_weight(node.op) && bias_name(node).empty(); })) {
      correct_biases(model, model.weights(), x);
      ++corrected;
    }
    expect_same_bytes(model, images, preprocessing, "seed " + std::to_string(seed), 1);
  }
  EXPECT_GT(pairs, 50);  // or this says little about them
  EXPECT_GT(corrected, 20);
}

TEST(QatGraph, SumsPastFloat32) {
  for (const int groups : {1, 2, 0}) {
    const Graph graph = test::large_sums(groups);
    const QuantizedModel model = test::calibrated(graph, test::large_weights(graph), {});
    const Shape& shape = graph.nodes[0].shape;
    const Preprocessing preprocessing = test::preprocessing_for(shape);
    EXPECT_EQ(qat_graph_program(model, preprocessing)->layers()[1].kernel, "aten_conv2d_f64");
    EXPECT_EQ(qat_graph_program(model, preprocessing)->layers().back().kernel, "aten_linear_f32");
    expect_same_bytes(model, test::random_images(shape, kBatch, 8), preprocessing,
                      "large sums, groups " + std::to_string(groups));
  }
}

TEST(QatGraph, SimulationIsNearAndCountsItsDifference) {
  const ModelSpec spec = test::family("resnet8", 32);
  const Graph graph = build_model(spec);
  const QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 9), {});
  const Preprocessing preprocessing = test::preprocessing_for(spec.input);
  const auto images = test::random_images(spec.input, kBatch, 3);
  const Int8Graph int8 = model.convert(preprocessing, {});
  const auto exact = all_bytes(*qat_graph_program(model, preprocessing), int8, images, kBatch);
  const auto simulated = all_bytes(*simulation_program(model, preprocessing), int8, images, kBatch);
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

/// Both compute the function in double and round it to float32 once.
TEST(QatGraph, FunctionsOfTheSimulationGiveTheCodesOfTables) {
  ModelSpec spec = test::family("graph", 32);
  spec.graph = {{"a", "avg_pool", {"input"}, {{"kernel", 1}}}};
  std::vector<std::string> names;
  for (const std::string_view name : names_in(kFunctions)) {
    names.emplace_back(name);
    spec.graph.push_back({names.back(), names.back(), {"input"}, {}});
  }
  spec.graph.push_back({"c", "concat", names, {}});
  spec.graph.push_back({"m", "mul", {"a", "sigmoid"}, {}});
  spec.graph.push_back({"b", "concat", {"c", "m"}, {}});
  spec.graph.push_back({"g", "global_avg_pool", {}, {}});
  spec.graph.push_back({"l", "linear", {}, {{"out_channels", 10}}});
  const Graph graph = build_model(spec);
  const Preprocessing preprocessing = test::preprocessing_for(spec.input);
  const auto images = test::random_images(spec.input, kBatch, 3);
  size_t differing = 0, total = 0;
  for (const ActivationScheme scheme : kSchemes) {
    QuantSpec quant;
    quant.activation = scheme;
    const QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 9), quant);
    expect_same_bytes(model, images, preprocessing, "functions");
    const Int8Graph int8 = model.convert(preprocessing, {});
    const auto exact = all_bytes(*qat_graph_program(model, preprocessing), int8, images, kBatch);
    const auto simulated = all_bytes(*simulation_program(model, preprocessing), int8, images, kBatch);
    const std::vector<Node>& nodes = model.prepared().graph.nodes;
    for (size_t n = 0; n < nodes.size(); ++n) {
      if (nodes[n].op != Op::lookup) continue;
      const std::string &a = exact.at(static_cast<int>(n)), &b = simulated.at(static_cast<int>(n));
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i) differing += a[i] != b[i];
      total += a.size();
    }
  }
  EXPECT_EQ(total, 3 * kFunctions.size() * 2 * 3 * 32 * 32);
  EXPECT_EQ(differing, 0u);
}

/// Where the forward pass of training and the simulation differ it is by autocast alone.
TEST(QatGraph, TheForwardPassThatWasTrainedIsAProgramToo) {
  const ModelSpec spec = test::family("resnet8", 32);
  const Graph graph = build_model(spec);
  QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 9), {});
  const Preprocessing preprocessing = test::preprocessing_for(spec.input);
  const auto images = test::random_images(spec.input, kBatch, 3);
  const Int8Graph int8 = model.convert(preprocessing, {});
  const auto simulated = all_bytes(*simulation_program(model, preprocessing), int8, images, kBatch);
  const auto bytes_of = [&](Precision precision) {
    return all_bytes(*trained_forward_program(model, preprocessing, precision), int8, images, kBatch);
  };
  EXPECT_EQ(bytes_of(Precision::fp32), simulated);
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    const auto trained = bytes_of(precision);
    ASSERT_EQ(trained.size(), simulated.size());
    EXPECT_EQ(trained.at(0), simulated.at(0));  // the input is quantized in float32
    EXPECT_NE(trained.at(1), simulated.at(1));
    const c10::NoGradGuard no_grad;
    const at::Tensor x = images_to_tensor({images.data(), kBatch, spec.input}, preprocessing.mean, preprocessing.std);
    const Autocast autocast(at::kCPU, precision);
    const at::Tensor logits = model.forward(x, {}).to(at::kFloat);
    EXPECT_EQ(std::memcmp(trained.at(-1).data(), logits.const_data_ptr(), logits.nbytes()), 0);
  }
}

}  // namespace
}  // namespace octet
