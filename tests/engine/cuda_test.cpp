// SPDX-License-Identifier: Apache-2.0
// Engine cuda: the promise on random convolutions and networks, batch sizes, memory, forced kernels, refusals.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "src/base/error.h"
#include "src/cuda/memory.h"
#include "src/engine/engine.h"
#include "src/engine/kernel_cache.h"
#include "tests/cuda/gpu.h"
#include "tests/engine/network_builder.h"
#include "tests/engine/network_coverage.h"
#include "tests/engine/random_network.h"
#include "tests/engine/same_bytes.h"

namespace octet::test {
namespace {

std::unique_ptr<Program> cuda_program(const Int8Graph& graph, int max_batch, const std::string& kernels = "auto") {
  return find_engine("cuda").compile(graph, {.max_batch = max_batch, .kernels = kernels});
}

/// The outputs of the first `batch` images of as many as `all` are of.
std::vector<std::vector<uint8_t>> first_of(const std::vector<std::vector<uint8_t>>& all, const Int8Graph& graph,
                                           int batch) {
  std::vector<std::vector<uint8_t>> first;
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t bytes = graph.nodes[graph.outputs[i]].image_bytes() * batch;
    first.emplace_back(all[i].begin(), all[i].begin() + static_cast<long>(bytes));
  }
  return first;
}

/// "" or where cuda (tapped, and replayed as a graph), cpu and reference differ.
std::string cuda_difference(const Int8Graph& graph, int batch, uint64_t seed, const std::string& kernels = "auto") {
  const std::vector<uint8_t> images = random_images(graph, batch, seed);
  const auto compile = [&](const char* engine) {
    return find_engine(engine).compile(graph, {.max_batch = batch, .threads = 1});
  };
  const Trace expected = trace(*compile("reference"), graph, images, batch);
  const auto cuda = cuda_program(graph, batch, kernels);
  const std::string tapped = difference(graph, expected, trace(*cuda, graph, images, batch));
  if (!tapped.empty()) return "cuda, tapped: " + tapped;
  if (outputs_of(*cuda, graph, images, batch) != expected.outputs) return "cuda, as a graph: outputs differ";
  const std::string cpu = difference(graph, expected, trace(*compile("cpu"), graph, images, batch));
  return cpu.empty() ? "" : "cpu: " + cpu;
}

int batch_of(uint64_t seed) {
  constexpr int kBatches[] = {1, 7, 128};
  return kBatches[seed % 3];
}

constexpr int kShards = 4;

class CudaConvolutions : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Random, CudaConvolutions, testing::Range(0, kShards));

TEST_P(CudaConvolutions, SameBytes) {
  OCTET_NEEDS_GPU();
  for (const uint64_t seed : test_seeds(1 + 500 * GetParam(), 500)) {
    ASSERT_EQ(cuda_difference(random_convolution(seed), batch_of(seed), seed), "") << "OCTET_TEST_SEED=" << seed;
  }
}

TEST(CudaNetworks, SameBytes) {
  OCTET_NEEDS_GPU();
  NetworkCoverage coverage;
  for (const uint64_t seed : test_seeds(1, network_count(300))) {
    const Int8Graph graph = random_network(seed);
    ASSERT_EQ(cuda_difference(graph, batch_of(seed), seed), "") << "OCTET_TEST_SEED=" << seed;
    coverage.add(graph, batch_of(seed));
  }
  std::cout << coverage.text() << "\n";
  EXPECT_EQ(coverage.rare(), "");
}

// What compute-sanitizer runs.
TEST(CudaSmall, SameBytes) {
  OCTET_NEEDS_GPU();
  for (uint64_t seed = 9001; seed < 9012; ++seed) {
    ASSERT_EQ(cuda_difference(random_network(seed), batch_of(seed), seed), "") << "seed " << seed;
  }
}

TEST(CudaProgram, BatchSizesInAnyOrderDoNotDisturbEachOther) {
  OCTET_NEEDS_GPU();
  constexpr int kMost = 12;  // more sizes than graphs are kept
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const Int8Graph graph = random_network(seed);
    const std::vector<uint8_t> images = random_images(graph, kMost, seed);
    const auto cpu = find_engine("cpu").compile(graph, {.max_batch = kMost, .threads = 1});
    const std::vector<std::vector<uint8_t>> expected = outputs_of(*cpu, graph, images, kMost);
    const auto cuda = cuda_program(graph, kMost);
    Random random(seed);
    for (int turn = 0; turn < 40; ++turn) {
      const int batch = random.between(1, kMost);
      ASSERT_TRUE(outputs_of(*cuda, graph, images, batch) == first_of(expected, graph, batch))
          << "seed " << seed << ", batch " << batch;
    }
  }
}

/// Codes of the input node: every byte that was copied, each through its table.
std::vector<uint8_t> input_codes(Program& program, const uint8_t* images, int batch, float* logits) {
  std::vector<uint8_t> codes;
  program.run(images, batch, logits, [&](int node, const void* data, size_t bytes) {
    if (node == 0) codes.assign(static_cast<const uint8_t*>(data), static_cast<const uint8_t*>(data) + bytes);
  });
  return codes;
}

TEST(CudaProgram, PageLockedAndOtherMemoryArriveWhole) {
  OCTET_NEEDS_GPU();
  Random random(3);
  NetworkBuilder network(random, {3, 160, 160});
  const Int8Graph graph = network.finish(network.global_avg_pool(0));
  constexpr int kBatch = 100;  // 7.7 MB: several pieces of the page-locked buffers
  const std::vector<uint8_t> images = [&] {
    std::vector<uint8_t> noise(graph.input_shape().elements() * kBatch);
    for (uint8_t& pixel : noise) pixel = static_cast<uint8_t>(random.between(0, 255));
    return noise;
  }();
  const PinnedBuffer pinned(images.size()), pinned_logits(sizeof(float) * graph.classes() * kBatch);
  ASSERT_TRUE(is_page_locked(pinned.data()));
  ASSERT_FALSE(is_page_locked(images.data()));
  std::memcpy(pinned.data(), images.data(), images.size());

  const auto cpu = find_engine("cpu").compile(graph, {.max_batch = kBatch});
  std::vector<float> expected(static_cast<size_t>(graph.classes()) * kBatch), logits(expected.size());
  const std::vector<uint8_t> codes = input_codes(*cpu, images.data(), kBatch, expected.data());
  const auto cuda = cuda_program(graph, kBatch);
  EXPECT_EQ(input_codes(*cuda, images.data(), kBatch, logits.data()), codes);
  EXPECT_EQ(std::memcmp(logits.data(), expected.data(), pinned_logits.bytes()), 0);
  auto* to_pinned = reinterpret_cast<float*>(pinned_logits.data());
  EXPECT_EQ(input_codes(*cuda, pinned.data(), kBatch, to_pinned), codes);
  EXPECT_EQ(std::memcmp(to_pinned, expected.data(), pinned_logits.bytes()), 0);
}

TEST(CudaProgram, TensorsBeyondFourGigabytes) {
  OCTET_NEEDS_GPU();
  if (gpu_status().memory_bytes < (size_t{24} << 30)) GTEST_SKIP() << "needs 24 GiB of GPU memory";
  Random random(11);
  NetworkBuilder network(random, {3, 256, 256});
  const Int8Graph graph = [&] {
    int x = network.convolution(0);
    while (network.shape(x).elements() < 1 << 20) x = network.concat({x, x, x});
    return network.finish(network.global_avg_pool(network.requantize(x)));
  }();
  size_t largest = 0;
  for (const Int8Node& node : graph.nodes) largest = std::max<size_t>(largest, node.shape.elements());
  const int batch = static_cast<int>((size_t{9} << 29) / largest);  // 4.5 GiB of codes in one tensor
  const std::vector<uint8_t> images = random_images(graph, batch, 11);
  const auto cuda = cuda_program(graph, batch);
  std::vector<float> all(static_cast<size_t>(graph.classes()) * batch);
  cuda->run(images.data(), batch, all.data());
  const size_t image = graph.input_shape().elements();
  constexpr int kFew = 4;
  const auto cpu = find_engine("cpu").compile(graph, {.max_batch = kFew});
  for (int first = 0; first + kFew <= batch; first += (batch - kFew) / 5) {
    std::vector<float> expected(static_cast<size_t>(graph.classes()) * kFew);
    cpu->run(images.data() + image * first, kFew, expected.data());
    EXPECT_EQ(std::memcmp(expected.data(), all.data() + static_cast<size_t>(graph.classes()) * first,
                          expected.size() * sizeof(float)),
              0)
        << "images from " << first << " of " << batch;
  }
}

TEST(CudaProgram, ForcedKernelsRunOrAreRefusedWithTheNames) {
  OCTET_NEEDS_GPU();
  int refused = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Int8Graph graph = random_convolution(seed);
    ASSERT_EQ(cuda_difference(graph, 2, seed, "direct"), "") << "seed " << seed;
    for (const LayerInfo& layer : cuda_program(graph, 2, "direct")->layers()) {
      const bool weighted = layer.name.starts_with("conv2d") || layer.name.starts_with("linear");
      EXPECT_TRUE(!weighted || layer.kernel.find("direct") != std::string::npos) << layer.name << ": " << layer.kernel;
    }
    try {
      cuda_program(graph, 2, "quantum");
    } catch (const Error& error) {
      ++refused;
      const std::string what = error.what();
      EXPECT_EQ(error.code(), ExitCode::promise);
      for (const char* part : {"node '", "quantum", "direct"}) EXPECT_NE(what.find(part), std::string::npos) << what;
    }
  }
  EXPECT_EQ(refused, 60);
}

TEST(CudaProgram, OutOfMemorySaysWhatFits) {
  OCTET_NEEDS_GPU();
  Random random(5);
  NetworkBuilder network(random, {3, 128, 128});
  const Int8Graph graph = network.finish(network.requantize(0));
  const size_t image = size_t{8} * 128 * 128;  // two tensors of 4-byte pixels
  const int too_many = static_cast<int>(2 * gpu_status().memory_bytes / image);
  int fits = 0;
  try {
    cuda_program(graph, too_many);
    FAIL() << "compiled for " << too_many << " images";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::promise);
    const std::string what = error.what();
    EXPECT_NE(what.find("activations of " + std::to_string(too_many) + " images do not fit"), std::string::npos)
        << what;
    const size_t at = what.find("a batch of ");
    ASSERT_NE(at, std::string::npos) << what;
    fits = std::stoi(what.substr(at + std::strlen("a batch of ")));
  }
  EXPECT_GT(fits, too_many / 20);
  EXPECT_LT(fits, too_many);
  EXPECT_EQ(cuda_difference(random_network(1), 1, 1), "");  // nothing is left behind
}

TEST(CudaProgram, TimesEveryNodeThatHasAKernel) {
  OCTET_NEEDS_GPU();
  const Int8Graph graph = random_network(5);
  const auto cuda = cuda_program(graph, 4);
  const std::vector<uint8_t> images = random_images(graph, 4, 5);
  const std::vector<std::vector<uint8_t>> before = outputs_of(*cuda, graph, images, 4);
  const std::vector<double> runs = cuda->time_on_device(4, 10), layers = cuda->time_layers_on_device(4, 10);
  ASSERT_EQ(runs.size(), 10u);
  for (const double ms : runs) EXPECT_GT(ms, 0);
  ASSERT_EQ(layers.size(), graph.nodes.size());
  const std::vector<LayerInfo> infos = cuda->layers();
  for (size_t node = 0; node < layers.size(); ++node) {
    // The last of nodes that run together, as a merged lookup, holds their time.
    const bool goes_on = std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Int8Node& n) {
      return !n.inputs.empty() && n.inputs[0] == static_cast<int>(node) &&
             infos[&n - graph.nodes.data()].kernel == "merged";
    });
    EXPECT_EQ(layers[node] > 0, infos[node].kernel != "alias" && !goes_on) << infos[node].name;
    EXPECT_EQ(infos[node].engine, infos[node].kernel == "alias" ? "" : "cuda");
  }
  EXPECT_TRUE(outputs_of(*cuda, graph, images, 4) == before);
}

TEST(CudaProgram, ConvolutionsLookTheirCodesUp) {
  OCTET_NEEDS_GPU();
  Random random(2);
  NetworkBuilder network(random, {4, 16, 16});
  int x = 0;
  for (int layer = 0; layer < 3; ++layer) x = network.lookup(network.convolution(x));
  const Int8Graph graph = network.finish(network.flatten(x));
  const std::vector<LayerInfo> layers = cuda_program(graph, 2)->layers();
  for (int node = 2; node <= 6; node += 2) {
    EXPECT_TRUE(layers[node - 1].kernel.ends_with("_lookup")) << layers[node - 1].kernel;
    EXPECT_EQ(layers[node].kernel, "merged");
  }
  EXPECT_EQ(cuda_difference(graph, 2, 6), "");
}

TEST(CudaProgram, KeepsWhichKernelsWereFastest) {
  OCTET_NEEDS_GPU();
  const std::filesystem::path folder = ::testing::TempDir() + "octet_kernels_" + std::to_string(::getpid());
  set_kernel_cache(folder);
  const auto program = cuda_program(random_network(4), 13);  // no other test's number of images
  set_kernel_cache("");
  const auto kept = std::distance(std::filesystem::directory_iterator(folder), {});
  std::filesystem::remove_all(folder);
  EXPECT_GT(kept, 0);
}

TEST(CudaProgram, RefusesWrongBatches) {
  OCTET_NEEDS_GPU();
  const Int8Graph graph = random_convolution(1);
  const auto cuda = cuda_program(graph, 2);
  const std::vector<uint8_t> images = random_images(graph, 3, 1);
  std::vector<float> logits(3 * static_cast<size_t>(graph.classes()));
  EXPECT_THROW(cuda->run(images.data(), 3, logits.data()), Error);
  EXPECT_THROW(cuda->run(images.data(), 0, logits.data()), Error);
  EXPECT_THROW(cuda->time_on_device(3, 1), Error);
  EXPECT_THROW(cuda_program(graph, 0), Error);
}

TEST(CudaEngine, WithoutAGpuSaysWhyAndRefuses) {
  if (gpu_status().usable) GTEST_SKIP() << "this machine has a GPU";
  const Engine& cuda = find_engine("cuda");
  EXPECT_FALSE(cuda.available().ok);
  EXPECT_EQ(cuda.available().reason, gpu_status().reason);
  try {
    cuda.compile(random_convolution(1), {});
    FAIL() << "compiled";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::promise);
    EXPECT_EQ(error.what(), "engine cuda cannot run on this machine: " + gpu_status().reason);
  }
}

}  // namespace
}  // namespace octet::test
