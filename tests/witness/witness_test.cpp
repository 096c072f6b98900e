// SPDX-License-Identifier: Apache-2.0
// Engines held to tools/verify_checkpoint.py, which computes codes and logits from the documented format alone: every
// layer, byte for byte. Needs a Python with numpy: $OCTET_PYTHON, the one of tools/setup.sh, or python3.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "src/base/files.h"
#include "src/base/safetensors.h"
#include "src/engine/engine.h"
#include "src/net/checkpoint.h"
#include "src/net/zoo.h"
#include "src/quant/convert.h"
#include "src/quant/plan.h"
#include "tests/engine/network_coverage.h"
#include "tests/engine/random_network.h"
#include "tests/engine/same_bytes.h"
#include "tests/quant/random_plan.h"
#include "tests/source_dir.h"
#include "tests/witness/python.h"

namespace octet {
namespace {

using test::python;

struct Outcome {
  int status;
  std::string output;
};

constexpr int kImages = 2;

class Witness : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::python_has("numpy")) {
      GTEST_SKIP() << python() << " has no numpy; name another one in OCTET_PYTHON";
    }
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("octet_witness_" + std::to_string(::getpid()) + "_" + test->name());
    std::filesystem::create_directories(folder_);
  }

  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  std::string file(const std::string& name) const { return (folder_ / name).string(); }

  void write_both_dumps(const Int8Graph& graph, int images) const {
    write_checkpoint(file("int8.safetensors"), graph);
    run_engine("reference", graph, images);
    run_engine("cpu", graph, images);
  }

  /// Runs `graph` on random images and writes a dump, named after the engine or the kernels.
  void run_engine(const std::string& engine, const Int8Graph& graph, int images,
                  const std::string& kernels = "auto") const {
    const std::vector<uint8_t> pixels = test::random_images(graph, images, 7);
    const OutputBuffers outputs(graph, images);
    CodeDump dump(graph);
    dump.add_images(pixels.data(), images);
    find_engine(engine)
        .compile(graph, {.max_batch = images, .kernels = kernels})
        ->run(pixels.data(), images, outputs.memory(),
              [&](int node, const void* data, size_t bytes) { dump.add(node, data, bytes); });
    dump.write(file(kernels == "auto" ? engine : kernels));
  }

  Outcome verify(const std::vector<std::string>& dumps = {"reference", "cpu"}) const {
    // numpy's threads wait for each other in loops, and tests share the cores: one takes half the processor's time.
    std::string command = "OMP_NUM_THREADS=1 " + python() + " " + source_dir() + "/tools/verify_checkpoint.py " +
                          file("int8.safetensors") + " --against";
    for (const std::string& dump : dumps) command += " " + file(dump);
    command += " >" + file("output") + " 2>&1";
    const int status = std::system(command.c_str());
    return {WEXITSTATUS(status), read_file(file("output"))};
  }

  /// "", or what the witness says: of the reference and every path of the cpu engine.
  std::string difference_on_every_path(const Int8Graph& graph) const {
    write_checkpoint(file("int8.safetensors"), graph);
    run_engine("reference", graph, kImages);
    std::vector<std::string> dumps = {"reference"};
    for (const std::string& path : test::cpu_paths()) {
      run_engine("cpu", graph, kImages, path);
      dumps.push_back(path);
    }
    const Outcome outcome = verify(dumps);
    return outcome.status == 0 ? "" : "witness: " + outcome.output;
  }

  void expect_equal(const Int8Graph& graph) {
    write_both_dumps(graph, kImages);
    const Outcome outcome = verify();
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("EQUAL: " + std::to_string(graph.nodes.size()) + " layers, 2 images"),
              std::string::npos)
        << outcome.output;
  }

 private:
  std::filesystem::path folder_;
};

Int8Graph random_graph(const ModelSpec& model, ActivationScheme scheme) {
  return random_int8_graph(fuse(build_model(model)), {.activation = scheme}, 11);
}

TEST_F(Witness, AgreesOnResidualsInEveryScheme) {
  for (const auto scheme :
       {ActivationScheme::symmetric_s8, ActivationScheme::unsigned_u8, ActivationScheme::affine_u8}) {
    expect_equal(random_graph({.name = "resnet8", .shortcut = 'A'}, scheme));
  }
}

TEST_F(Witness, AgreesOnDepthwiseAndConcat) {
  expect_equal(random_graph({.name = "mobilenet_v2", .width = 0.5}, ActivationScheme::affine_u8));
  expect_equal(random_graph({.name = "squeezenet1_1"}, ActivationScheme::unsigned_u8));
}

TEST_F(Witness, AgreesOnFunctionsAndSqueezeAndExcite) {
  for (const auto scheme :
       {ActivationScheme::symmetric_s8, ActivationScheme::unsigned_u8, ActivationScheme::affine_u8}) {
    expect_equal(random_graph({.name = "efficientnet_b0"}, scheme));
    expect_equal(random_graph({.name = "mobilenet_v3_large"}, scheme));
  }
}

TEST_F(Witness, AgreesOnTheWholeZoo) {
  for (const std::string_view name : model_names()) {
    const Int8Graph graph = random_graph({.name = std::string(name)}, ActivationScheme::affine_u8);
    EXPECT_EQ(difference_on_every_path(graph), "") << name;
  }
}

/// With weights of 8 and of 4 bits; and a group with a third weight is refused, whoever wrote it.
TEST_F(Witness, AgreesOnSparseWeightsAndChecksThem) {
  for (const int bits : {8, 4}) {
    const QuantSpec spec{.weight_bits = bits, .sparsity = Sparsity::two_of_four};
    for (const char* name : {"resnet8", "mobilenet_v2", "small_cnn"}) {
      const Int8Graph graph = random_int8_graph(fuse(build_model({.name = name, .width = 0.5})), spec, 11);
      EXPECT_EQ(checkpoint_version(graph), 7);
      expect_equal(graph);
    }
  }
  const Int8Graph graph =
      random_int8_graph(fuse(build_model({.name = "resnet8"})), {.sparsity = Sparsity::two_of_four}, 11);
  write_both_dumps(graph, kImages);
  TensorFile damaged = read_safetensors(file("int8.safetensors"));
  TensorData& weight = damaged.tensors.at("linear.weight");
  std::fill_n(weight.bytes.begin() + 4, 3, std::byte{1});
  write_safetensors(file("int8.safetensors"), damaged);
  const Outcome outcome = verify();
  EXPECT_EQ(outcome.status, 3);
  EXPECT_NE(outcome.output.find("'linear' (linear): 2:4 sparse, but more than two of four weights are not 0"),
            std::string::npos)
      << outcome.output;
}

TEST_F(Witness, AgreesOnBitPlans) {
  const QuantSpec w4a4{.activation = ActivationScheme::unsigned_u8,
                       .activation_bits = 4,
                       .weight_bits = 4,
                       .weight_range = WeightRange::full,
                       .residual_bits = 8};
  QuantSpec w2a2{.activation_bits = 2, .weight_bits = 2, .weight_range = WeightRange::full, .residual_bits = 5};
  w2a2.layers = {{"layer2.*", 3, 6}, {"*.conv1", 5, 0}};
  const QuantSpec everything = uniform_bits(3, 2);
  for (const QuantSpec& spec : {w4a4, w2a2, everything}) {
    expect_equal(random_int8_graph(build_model({.name = "resnet8"}), spec, 11));
  }
  expect_equal(random_int8_graph(build_model({.name = "mobilenet_v2", .width = 0.5}), w4a4, 3));
}

TEST_F(Witness, AgreesOnRandomNetworksWithRandomBitPlans) {
  for (uint64_t seed = 0; seed < 25; ++seed) {
    const Graph graph = test::random_graph(1000 + seed, /*branches=*/50);
    expect_equal(random_int8_graph(graph, test::random_quant(graph, seed), seed));
  }
}

TEST_F(Witness, AgreesOnRandomNetworksWithEveryPath) {
  test::NetworkCoverage coverage;
  for (const uint64_t seed : test::test_seeds(1, test::network_count(24))) {
    const Int8Graph graph = test::random_network(seed);
    ASSERT_EQ(difference_on_every_path(graph), "") << "OCTET_TEST_SEED=" << seed;
    coverage.add(graph, kImages);
  }
  std::cout << coverage.text() << "\n";
  EXPECT_EQ(coverage.rare(), "");
}

TEST_F(Witness, AgreesOnRandomConvolutionsWithEveryPath) {
  for (const uint64_t seed : test::test_seeds(1, test::network_count(8)))
    ASSERT_EQ(difference_on_every_path(test::random_convolution(seed)), "") << "OCTET_TEST_SEED=" << seed;
}

TEST_F(Witness, ReadsEveryVersion) {
  const Int8Graph graphs[] = {random_graph({.name = "resnet8"}, ActivationScheme::affine_u8),
                              random_graph({.name = "mobilenet_v3_large"}, ActivationScheme::affine_u8),
                              random_graph({.name = "unet2"}, ActivationScheme::affine_u8),
                              random_graph({.name = "shufflenet_v2_x0_5"}, ActivationScheme::affine_u8)};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(checkpoint_version(graphs[i]), i + 1);
    expect_equal(graphs[i]);
  }
  Int8Graph turns = graphs[0];
  turns.preprocessing.exif_orientation = turns.preprocessing.even_margin = true;
  EXPECT_EQ(checkpoint_version(turns), 9);
  expect_equal(turns);
}

TEST_F(Witness, NamesTheFirstLayerThatDiffers) {
  Int8Graph graph = random_graph({.name = "resnet8"}, ActivationScheme::affine_u8);
  write_both_dumps(graph, 2);
  int8_t& weight = graph.nodes[2].weight.at(40);
  weight = static_cast<int8_t>(weight > 0 ? weight - 100 : weight + 100);
  write_checkpoint(file("int8.safetensors"), graph);
  const Outcome outcome = verify();
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  EXPECT_NE(outcome.output.find("DIFFERENT after 2 equal layers: " + file("reference") + ": " + graph.nodes[2].name),
            std::string::npos)
      << outcome.output;
}

TEST_F(Witness, RoundsAFusedMultiplyAddOnce) {
  // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24 lies halfway between two float32: the addend decides, however small it is, and
  // float64 alone would lose it.
  write_file_atomically(file("fma.py"), R"(
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
import witness_codes
a, below = np.array([1 + 2.0**-12], np.float32), 1 + 2.0**-11
for c, expected in ((2.0**-60, below + 2.0**-23), (0, below), (-(2.0**-60), below)):
    assert witness_codes.fma(a, a, np.float32(c))[0] == np.float32(expected), c
)");
  const std::string command = python() + " -B " + file("fma.py") + " " + source_dir() + "/tools";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST_F(Witness, RefusesDamagedFiles) {
  write_both_dumps(random_graph({.name = "resnet8"}, ActivationScheme::affine_u8), 1);
  const std::string bytes = read_file(file("int8.safetensors"));
  write_file_atomically(file("int8.safetensors"), bytes.substr(0, bytes.size() - 1));
  EXPECT_EQ(verify().status, 3);
}

TEST_F(Witness, NamesOutputsThatAreNoIndices) {
  Int8Graph graph = random_graph({.name = "resnet8"}, ActivationScheme::affine_u8);
  graph.outputs.push_back(1);
  write_both_dumps(graph, 1);
  TensorFile checkpoint = read_safetensors(file("int8.safetensors"));
  auto document = nlohmann::json::parse(checkpoint.metadata.at("octet"));
  for (const nlohmann::json& outputs : {nlohmann::json{"x"}, nlohmann::json(3), nlohmann::json{{1}, {2}}}) {
    document["outputs"] = outputs;
    checkpoint.metadata["octet"] = document.dump();
    write_safetensors(file("int8.safetensors"), checkpoint);
    const Outcome outcome = verify();
    EXPECT_EQ(outcome.status, 3);
    EXPECT_NE(outcome.output.find("BadFile: outputs "), std::string::npos) << outcome.output;
    EXPECT_NE(outcome.output.find("expected a list of nodes' indices"), std::string::npos) << outcome.output;
  }
}

}  // namespace
}  // namespace octet
