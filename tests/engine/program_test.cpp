// SPDX-License-Identifier: Apache-2.0
// Programs of both engines: taps, batches, threads, forced kernels, refusals.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "src/base/error.h"
#include "src/engine/cpu/cpu_program.h"
#include "src/engine/engine.h"
#include "src/net/zoo.h"
#include "src/quant/convert.h"
#include "tests/engine/random_network.h"
#include "tests/engine/same_bytes.h"
#include "tests/error_of.h"

namespace octet::test {
namespace {

constexpr int kBatch = 11;  // more than go through the cpu engine together

class Engines : public testing::TestWithParam<const char*> {
 protected:
  const Engine& engine() const { return find_engine(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(All, Engines, testing::Values("cpu", "reference"));

TEST_P(Engines, ImagesDoNotDependOnTheirBatch) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Int8Graph graph = random_network(seed);
    const std::vector<uint8_t> images = random_images(graph, kBatch, seed);
    const auto program = engine().compile(graph, {.max_batch = kBatch, .threads = 2});
    const std::vector<std::vector<uint8_t>> together = outputs_of(*program, graph, images, kBatch);
    const size_t pixels = graph.input_shape().elements();
    for (int image = 0; image < kBatch; ++image) {
      const std::vector<uint8_t> one(images.begin() + pixels * image, images.begin() + pixels * (image + 1));
      const std::vector<std::vector<uint8_t>> alone = outputs_of(*program, graph, one, 1);
      for (size_t i = 0; i < alone.size(); ++i) {
        const auto* part = together[i].data() + alone[i].size() * image;
        ASSERT_EQ(std::memcmp(part, alone[i].data(), alone[i].size()), 0) << "seed " << seed << ", output " << i;
      }
    }
  }
}

TEST_P(Engines, TapsDoNotDependOnThreadsAndSeeTheWholeBatch) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Int8Graph graph = random_network(seed);
    const std::vector<uint8_t> images = random_images(graph, kBatch, seed);
    const auto one = engine().compile(graph, {.max_batch = kBatch, .threads = 1});
    const auto two = engine().compile(graph, {.max_batch = kBatch, .threads = 2});
    const Trace expected = trace(*one, graph, images, kBatch);
    ASSERT_EQ(difference(graph, expected, trace(*two, graph, images, kBatch)), "") << "seed " << seed;
    for (size_t node = 0; node < graph.nodes.size(); ++node) {
      ASSERT_EQ(expected.nodes[node].size(), graph.nodes[node].image_bytes() * kBatch);
    }
    ASSERT_EQ(outputs_of(*two, graph, images, kBatch), expected.outputs) << "without a tap, seed " << seed;
  }
}

// Layers as wide as those of real networks, whose tasks are divided among threads in several ways.
TEST(CpuThreads, EveryNumberOfThemGivesTheSameBytes) {
  const Graph network = build_model({.name = "resnet18", .input = {3, 64, 64}, .classes = 10});
  const Int8Graph graph = random_int8_graph(network, {}, 1);
  const std::vector<uint8_t> images = random_images(graph, kBatch, 1);
  for (const kernels::CpuIsa isa : kernels::available_cpu_isas()) {
    if (isa == kernels::CpuIsa::portable) continue;  // slow, and a task is a row there
    const std::string path(kernels::cpu_isa_name(isa));
    const auto one = find_engine("cpu").compile(graph, {.max_batch = kBatch, .threads = 1, .kernels = path});
    const Trace expected = trace(*one, graph, images, kBatch);
    std::map<int, std::vector<std::vector<uint8_t>>> outputs;  // of so many images
    for (int batch = 1; batch <= kBatch; batch += 3) outputs[batch] = trace(*one, graph, images, batch).outputs;
    for (const int threads : {2, 3, 8, 17}) {
      const auto many = find_engine("cpu").compile(graph, {.max_batch = kBatch, .threads = threads, .kernels = path});
      ASSERT_EQ(difference(graph, expected, trace(*many, graph, images, kBatch)), "") << path << ", " << threads;
      for (const auto& [batch, some] : outputs) {
        ASSERT_EQ(outputs_of(*many, graph, images, batch), some) << path << ", " << threads << ", " << batch;
      }
    }
  }
}

// Networks whose first layers take fewer images at a time than the others: what lies between those, what a later layer
// reads too, and outputs that come early.
TEST(CpuEngine, LargeFirstLayersGiveTheBytesOfSingleImages) {
  for (const char* name : {"resnet18", "mobilenet_v2", "yolox_nano"}) {
    SCOPED_TRACE(name);
    Int8Graph graph = random_int8_graph(build_model({.name = name, .input = {3, 224, 224}, .classes = 10}), {}, 1);
    graph.outputs.insert(graph.outputs.begin(), 2);  // codes of a large layer
    const std::vector<uint8_t> images = random_images(graph, kBatch, 1);
    const auto alone = find_engine("cpu").compile(graph, {.max_batch = 1, .threads = 2});
    const auto together = find_engine("cpu").compile(graph, {.max_batch = kBatch, .threads = 2});
    EXPECT_LT(together->arena_bytes(), 8 * alone->arena_bytes());
    const size_t pixels = graph.input_shape().elements();
    std::vector<std::vector<std::vector<uint8_t>>> expected;  // each image's outputs
    for (int image = 0; image < kBatch; ++image) {
      const std::vector<uint8_t> one(images.begin() + pixels * image, images.begin() + pixels * (image + 1));
      expected.push_back(outputs_of(*alone, graph, one, 1));
    }
    for (const int batch : {kBatch, 6, 3}) {
      const std::vector<std::vector<uint8_t>> all = outputs_of(*together, graph, images, batch);
      for (int image = 0; image < batch; ++image) {
        for (size_t i = 0; i < all.size(); ++i) {
          const std::vector<uint8_t>& own = expected[image][i];
          ASSERT_EQ(std::memcmp(all[i].data() + own.size() * image, own.data(), own.size()), 0)
              << batch << ", output " << i;
        }
      }
    }
  }
}

TEST_P(Engines, SubmittedBatchesAreCollectedInOrder) {
  const Int8Graph graph = random_network(4);
  const std::vector<uint8_t> first = random_images(graph, 3, 1), second = random_images(graph, 2, 2);
  const auto program = engine().compile(graph, {.max_batch = 3, .threads = 1});
  const OutputBuffers of_first(graph, 3), of_second(graph, 2);
  program->submit(first.data(), 3);
  program->submit(second.data(), 2);
  EXPECT_NE(error_of([&] { program->submit(first.data(), 3); }).find("2 batches are submitted"), std::string::npos);
  program->collect(of_first.memory());
  program->collect(of_second.memory());
  EXPECT_EQ(of_first.all(), outputs_of(*program, graph, first, 3));
  EXPECT_EQ(of_second.all(), outputs_of(*program, graph, second, 2));
  EXPECT_NE(error_of([&] { program->collect(of_first.memory()); }).find("nothing to collect"), std::string::npos);
}

TEST_P(Engines, InputCodesFollowTheRule) {
  const Int8Graph graph = random_network(3);
  const std::vector<uint8_t> images = random_images(graph, 1, 3);
  const auto program = engine().compile(graph, {});
  const Trace result = trace(*program, graph, images, 1);
  const Preprocessing& p = graph.preprocessing;
  const int channels = graph.input_shape().c;
  for (size_t i = 0; i < images.size(); ++i) {
    const size_t c = i % channels;
    const int code = quantize(normalize_pixel(images[i], p.mean[c], p.std[c]), graph.nodes[0].out);
    ASSERT_EQ(result.nodes[0][i], static_cast<uint8_t>(code)) << "element " << i;
  }
}

TEST_P(Engines, RefuseWrongBatchesAndOptions) {
  const Int8Graph graph = random_convolution(1);
  const auto program = engine().compile(graph, {.max_batch = 2});
  const std::vector<uint8_t> images = random_images(graph, 3, 1);
  std::vector<float> logits(3 * graph.classes());
  EXPECT_THROW(program->run(images.data(), 3, logits.data()), Error);
  EXPECT_THROW(program->run(images.data(), 0, logits.data()), Error);
  void* two[] = {logits.data(), logits.data()};
  EXPECT_NE(error_of([&] {
              program->run(images.data(), 1, OutputMemory(two));
            }).find("memory for 2 outputs: the network gives 1"),
            std::string::npos);
  EXPECT_THROW(engine().compile(graph, {.max_batch = 0}), Error);
  EXPECT_THROW(engine().compile(graph, {.max_batch = 1, .threads = -1}), Error);
}

TEST_P(Engines, RefuseAnInvalidGraph) {
  Int8Graph graph = random_convolution(1);
  graph.nodes[1].multiplier.pop_back();
  EXPECT_THROW(engine().compile(graph, {}), Error);
}

TEST_P(Engines, NameAKernelForEveryLayer) {
  const Int8Graph graph = random_network(5);
  const auto program = engine().compile(graph, {});
  const std::vector<LayerInfo> layers = program->layers();
  ASSERT_EQ(layers.size(), graph.nodes.size());
  for (size_t node = 0; node < layers.size(); ++node) {
    EXPECT_EQ(layers[node].name, graph.nodes[node].name);
    EXPECT_FALSE(layers[node].kernel.empty());
  }
  EXPECT_GT(program->arena_bytes(), 0u);
}

TEST(CpuEngine, UnknownKernelsAreAnErrorThatListsTheKnown) {
  try {
    find_engine("cpu").compile(random_convolution(1), {.max_batch = 1, .threads = 1, .kernels = "sse9"});
    FAIL() << "compiled";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(std::string(error.what()).find("portable"), std::string::npos) << error.what();
  }
}

TEST(CpuEngine, UnsignedEdgesComputeTheSame) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const Int8Graph graph = random_network(seed), shifted = with_unsigned_edges(graph);
    validate(shifted);
    const std::vector<uint8_t> images = random_images(graph, 1, seed);
    const Engine& reference = find_engine("reference");
    const Trace expected = trace(*reference.compile(graph, {}), graph, images, 1);
    Trace actual = trace(*reference.compile(shifted, {}), shifted, images, 1);
    for (size_t node = 0; node < graph.nodes.size(); ++node) {
      EXPECT_FALSE(shifted.nodes[node].out.is_signed());
      if (!graph.nodes[node].out.is_signed() || graph.nodes[node].float_output) continue;
      for (uint8_t& byte : actual.nodes[node]) byte ^= 128;
    }
    for (size_t i = 0; i < graph.outputs.size(); ++i) {
      const Int8Node& node = graph.nodes[graph.outputs[i]];
      if (!node.out.is_signed() || node.float_output) continue;
      for (uint8_t& byte : actual.outputs[i]) byte ^= 128;
    }
    ASSERT_EQ(difference(graph, expected, actual), "") << "seed " << seed;
  }
}

TEST(EngineList, IsOrderedAndNamed) {
  std::vector<std::string> names;
  for (const Engine* engine : engines()) names.emplace_back(engine->name());
  EXPECT_EQ(names, (std::vector<std::string>{"cuda", "cudnn", "cutlass", "cpu", "reference"}));
  EXPECT_EQ(exact_engines().back()->name(), "reference");
  EXPECT_THROW(find_engine("abacus"), Error);
}

/// Null is a node whose output is its input's memory, and nothing else.
TEST(CpuStep, AnUnknownOperatorIsRefusedByItsNode) {
  Int8Graph graph;
  graph.nodes.resize(2);
  graph.nodes[1] = {.name = "odd", .op = static_cast<Int8Op>(99), .inputs = {0}};
  const Lowering lowering{graph, [](int channels) { return channels; }};
  EXPECT_EQ(error_of([&] { make_cpu_step(lowering, 1, kernels::CpuIsa::portable); }),
            "node 'odd': engine cpu has no step for int8 op number 99");
}

}  // namespace
}  // namespace octet::test
