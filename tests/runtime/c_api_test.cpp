// SPDX-License-Identifier: Apache-2.0
// include/octet/octet.h from outside: equal bytes, and every error as a status and a text.
#include <gtest/gtest.h>
#include <octet/octet.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>

#include "kernels/core/quantize.h"
#include "src/base/random.h"
#include "src/engine/engine.h"
#include "src/net/checkpoint.h"
#include "tests/base/damage.h"
#include "tests/data/images.h"
#include "tests/engine/random_network.h"
#include "tests/runtime/c_api.h"

namespace octet::test {
namespace {

using testing::TemporaryFolder;

/// Memory for the outputs of `batch` images, and pointers to it.
struct Outputs {
  Outputs(const Int8Graph& graph, int batch) {
    for (const int output : graph.outputs) memory.emplace_back(batch * graph.nodes[output].image_bytes());
    for (std::vector<uint8_t>& bytes : memory) pointers.push_back(bytes.data());
  }
  std::vector<std::vector<uint8_t>> memory;
  std::vector<void*> pointers;
};

TEST_F(CApi, GivesTheBytesOfTheReferenceAtEveryOutput) {
  for (const uint64_t seed : test_seeds(1, 20)) {
    const Int8Graph graph = random_network(seed);
    const std::vector<uint8_t> images = random_images(graph, 3, seed);
    Outputs expected(graph, 3), got(graph, 3);
    find_engine("reference")
        .compile(graph, {.max_batch = 3})
        ->run(images.data(), 3, std::span<void* const>(expected.pointers));
    octet_network* network = load(graph);
    ASSERT_NE(network, nullptr);
    ASSERT_EQ(octet_run(network, images.data(), 3, got.pointers.data()), OCTET_OK) << last_error();
    EXPECT_EQ(got.memory, expected.memory) << "seed " << seed;
    octet_free(network);
  }
}

/// octet.hpp's two ways to run a batch, against the reference.
TEST_F(CApi, TheClassOfCxxGivesTheSameBytesByRunAndByLogits) {
  const Int8Graph graph = random_convolution(3);
  write_checkpoint(folder_.path("cxx.safetensors"), graph);
  const std::vector<uint8_t> images = random_images(graph, 3, 3);
  Outputs expected(graph, 3), got(graph, 3);
  find_engine("reference")
      .compile(graph, {.max_batch = 3})
      ->run(images.data(), 3, std::span<void* const>(expected.pointers));
  runtime::Network network(folder_.path("cxx.safetensors"), "cpu", 3, 1);
  network.run(images.data(), 3, got.pointers.data());
  EXPECT_EQ(got.memory, expected.memory);
  const std::vector<float> logits = network.logits(images);
  ASSERT_EQ(logits.size() * sizeof(float), expected.memory[0].size());
  EXPECT_EQ(std::memcmp(logits.data(), expected.memory[0].data(), expected.memory[0].size()), 0);
}

TEST_F(CApi, DescribesInputAndOutputs) {
  Int8Graph graph = random_convolution(3);
  graph.outputs.push_back(1);
  octet_network* network = load(graph, nullptr, 7);
  const octet_description& about = *octet_describe(network);
  EXPECT_EQ(about.name, graph.name);
  EXPECT_EQ(about.max_batch, 7);
  EXPECT_EQ((Shape{about.input.channels, about.input.height, about.input.width}), graph.input_shape());
  EXPECT_EQ(about.input.type, OCTET_UINT8);
  ASSERT_EQ(about.outputs, 2);
  EXPECT_EQ(about.output[0].type, OCTET_FLOAT32);
  const Int8Node& codes = graph.nodes[1];
  EXPECT_EQ(about.output[1].name, codes.name);
  EXPECT_EQ(about.output[1].type, codes.out.is_signed() ? OCTET_INT8 : OCTET_UINT8);
  EXPECT_EQ(about.output[1].scale, codes.out.scale);
  EXPECT_EQ(about.output[1].zero_point, codes.out.zero_point);
  EXPECT_EQ((Shape{about.output[1].channels, about.output[1].height, about.output[1].width}), codes.shape);
  octet_free(network);
}

TEST_F(CApi, ErrorsAreAStatusAndAText) {
  const Int8Graph graph = random_convolution(5);
  const std::string good = folder_.path("int8.safetensors");
  octet_network* network = load(graph);
  const std::vector<uint8_t> images = random_images(graph, 4, 5);
  Outputs outputs(graph, 4);
  void** const memory = outputs.pointers.data();
  expect_error(octet_run(network, images.data(), 5, memory), OCTET_USAGE, {"batch of 5", "1 to 4"});
  expect_error(octet_run(network, images.data(), 0, memory), OCTET_USAGE, {"batch of 0"});
  expect_error(octet_run(network, nullptr, 1, memory), OCTET_USAGE, {"images is NULL"});
  expect_error(octet_run(network, images.data(), 1, nullptr), OCTET_USAGE, {"outputs is NULL"});
  void* const nowhere[] = {nullptr};
  expect_error(octet_run(network, images.data(), 1, nowhere), OCTET_USAGE, {"outputs[0]", "is NULL"});
  expect_error(octet_run(nullptr, images.data(), 1, memory), OCTET_USAGE, {"network is NULL"});
  EXPECT_EQ(octet_run(network, images.data(), 4, memory), OCTET_OK) << "usable after errors";

  octet_network* none = network;
  const auto load_error = [&](const char* file, const char* engine, int batch, int threads, octet_status status,
                              const std::vector<std::string>& parts) {
    none = network;
    expect_error(octet_load(file, engine, batch, threads, &none), status, parts);
    EXPECT_EQ(none, nullptr);
  };
  load_error("/none.safetensors", "cpu", 1, 1, OCTET_DATA, {"/none.safetensors"});
  load_error(nullptr, "cpu", 1, 1, OCTET_USAGE, {"checkpoint is NULL"});
  load_error(good.c_str(), "abacus", 1, 1, OCTET_USAGE, {"abacus", "reference"});
  load_error(good.c_str(), "cpu", 0, 1, OCTET_USAGE, {"max_batch 0"});
  load_error(good.c_str(), "cpu", 1, 100000, OCTET_USAGE, {"threads 100000", "to 1024"});
  load_error(good.c_str(), "cpu", 1, -1, OCTET_USAGE, {"threads -1"});
  folder_.write("cut.safetensors", serialize_checkpoint(graph).substr(0, 100));
  load_error(folder_.path("cut.safetensors").c_str(), "cpu", 1, 1, OCTET_DATA, {"cut.safetensors"});
  folder_.write("net.onnx", "\x08\x08\x12\x07pytorch" + std::string(100, 'x'));
  load_error(folder_.path("net.onnx").c_str(), "cpu", 1, 1, OCTET_DATA,
             {"net.onnx: an ONNX file", "octet export FILE.onnx --out int8.safetensors"});
  folder_.write("renamed.onnx", serialize_checkpoint(graph));  // by its bytes, not by its name
  octet_network* renamed = nullptr;
  EXPECT_EQ(octet_load(folder_.path("renamed.onnx").c_str(), "cpu", 1, 1, &renamed), OCTET_OK) << last_error();
  octet_free(renamed);
  for (const char* engine : {"cuda", "cudnn"}) {
    if (!find_engine(engine).available().ok)
      load_error(good.c_str(), engine, 1, 1, OCTET_PROMISE,
                 {"octet_load: engine '" + std::string(engine), "'auto' is"});
    EXPECT_EQ(last_error().find("--"), std::string::npos) << last_error();
  }
  load_error("/no\x1b[2J.safetensors", "cpu", 1, 1, OCTET_DATA, {"/no?[2J.safetensors"});
  expect_error(octet_load(good.c_str(), "cpu", 1, 1, nullptr), OCTET_USAGE, {"network is NULL"});
  EXPECT_EQ(octet_describe(nullptr), nullptr);
  octet_free(nullptr);
  octet_free(network);
}

TEST_F(CApi, ANumberBehindTheEngineIsTheGpu) {
  write_checkpoint(folder_.path("int8.safetensors"), random_convolution(5));
  const std::string file = folder_.path("int8.safetensors");
  octet_network* network = nullptr;
  const auto refused = [&](const char* engine, octet_status status, const std::vector<std::string>& parts) {
    expect_error(octet_load(file.c_str(), engine, 1, 1, &network), status, parts);
    EXPECT_EQ(network, nullptr);
  };
  for (const char* wrong : {"cuda:", "cuda:x", "cuda:-1"})
    refused(wrong, OCTET_USAGE, {"engine '" + std::string(wrong) + "'", "the number of a GPU", "cuda:0"});
  refused("cpu:0", OCTET_USAGE, {"engine 'cpu:0'", "takes no number"});
  const Support cuda = find_engine("cuda").available();
  refused("cuda:99", OCTET_PROMISE,
          {"octet_load: engine 'cuda:99'", cuda.ok ? "there is no GPU 99: " : cuda.reason, "'auto' is"});
}

/// Files that engine cuda has kept.
size_t kept_in(const std::string& folder) {
  std::error_code none;
  const std::filesystem::directory_iterator files(folder, none);
  return none ? 0 : std::distance(begin(files), end(files));
}

TEST_F(CApi, KeepsKernelsWhereItIsToldOrNowhere) {
  if (const Support cuda = find_engine("cuda").available(); !cuda.ok) GTEST_SKIP() << "needs a GPU: " << cuda.reason;
  const std::string told = folder_.path("told"), cache = folder_.path("cache");
  const auto load_cuda = [&](uint64_t seed) { octet_free(load(random_network(seed), "cuda")); };
  ASSERT_EQ(octet_keep_kernels(told.c_str()), OCTET_OK);
  load_cuda(21);
  const size_t kept = kept_in(told);
  EXPECT_GT(kept, 0u);
  ASSERT_EQ(octet_keep_kernels(""), OCTET_OK);
  load_cuda(22);
  EXPECT_EQ(kept_in(told), kept);
  folder_.write("file", "where no folder can be made");
  ASSERT_EQ(octet_keep_kernels(folder_.path("file/kernels").c_str()), OCTET_OK);
  load_cuda(23);
  ::setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  ASSERT_EQ(octet_keep_kernels(nullptr), OCTET_OK);
  load_cuda(24);
  EXPECT_GT(kept_in(cache + "/octet/kernels"), 0u);
  EXPECT_EQ(kept_in(told), kept);
  octet_keep_kernels("");
}

TEST(CApiDeathTest, KeepsKernelsWithoutBeingTold) {  // in a process of its own, whose first load this is
  if (const Support cuda = find_engine("cuda").available(); !cuda.ok) GTEST_SKIP() << "needs a GPU: " << cuda.reason;
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto load_one = [] {
    const TemporaryFolder folder;
    ::setenv("XDG_CACHE_HOME", folder.path("cache").c_str(), 1);
    write_checkpoint(folder.path("int8.safetensors"), random_network(25));
    octet_network* network = nullptr;
    const octet_status status = octet_load(folder.path("int8.safetensors").c_str(), "cuda", 2, 1, &network);
    octet_free(network);
    return status == OCTET_OK && kept_in(folder.path("cache/octet/kernels")) > 0 ? 0 : 1;
  };
  EXPECT_EXIT(std::exit(load_one()), ::testing::ExitedWithCode(0), "");
}

TEST_F(CApi, ANetworkOnAGpuRunsInAnyThread) {
  if (const Support cuda = find_engine("cuda").available(); !cuda.ok) GTEST_SKIP() << "needs a GPU: " << cuda.reason;
  const Int8Graph graph = random_network(26);
  const std::vector<uint8_t> images = random_images(graph, 3, 26);
  Outputs expected(graph, 3);
  find_engine("reference")
      .compile(graph, {.max_batch = 3})
      ->run(images.data(), 3, std::span<void* const>(expected.pointers));
  octet_keep_kernels("");
  for (int gpu = 0; find_engine("cuda").available_on(gpu).ok; ++gpu) {
    const std::string engine = "cuda:" + std::to_string(gpu);
    Outputs got(graph, 3);
    octet_network* network = nullptr;
    std::thread([&] { network = load(graph, engine.c_str()); }).join();
    ASSERT_NE(network, nullptr);
    EXPECT_EQ(octet_describe(network)->engine, engine);
    std::thread([&] { EXPECT_EQ(octet_run(network, images.data(), 3, got.pointers.data()), OCTET_OK); }).join();
    EXPECT_EQ(got.memory, expected.memory) << engine;
    std::thread([&] { octet_free(network); }).join();
  }
}

TEST_F(CApi, ADamagedCheckpointIsRefusedOrRuns) {
  const Int8Graph graph = random_convolution(5);
  const std::string whole = serialize_checkpoint(graph), file = folder_.path("damaged.safetensors");
  const std::vector<uint8_t> images = random_images(graph, 1, 5);
  const auto refusal = [&](const std::string& bytes) -> std::string {
    std::filesystem::remove(file);  // ext4 waits for the disk when a file is cut to nothing and written anew
    folder_.write("damaged.safetensors", bytes);
    octet_network* network = nullptr;
    if (const octet_status status = octet_load(file.c_str(), "cpu", 1, 1, &network); status != OCTET_OK) {
      EXPECT_EQ(network, nullptr);
      EXPECT_TRUE(status == OCTET_DATA || status == OCTET_PROMISE) << status << ": " << last_error();
      return last_error();
    }
    Outputs outputs(read_checkpoint(file), 1);
    const octet_tensor& in = octet_describe(network)->input;
    if (Shape{in.channels, in.height, in.width} == graph.input_shape())
      EXPECT_EQ(octet_run(network, images.data(), 1, outputs.pointers.data()), OCTET_OK) << last_error();
    octet_free(network);
    return "";
  };
  ASSERT_EQ(refusal(whole), "");
  for (size_t size = 0; size < whole.size(); size += 7) EXPECT_NE(refusal(whole.substr(0, size)), "") << size;
  const int refused = refused_of_damaged(whole, 5, refusal);
  EXPECT_GT(refused, 100);
  EXPECT_LT(refused, 3000);
}

TEST_F(CApi, EveryThreadHasItsOwnErrorAndNetwork) {
  expect_error(octet_load("/mine.safetensors", "cpu", 1, 1, nullptr), OCTET_USAGE, {"network is NULL"});
  const std::string before = last_error();
  const Int8Graph graph = random_network(8);
  const std::vector<uint8_t> images = random_images(graph, 2, 8);
  octet_free(load(graph));
  std::vector<Outputs> outputs(4, Outputs(graph, 2));
  std::vector<std::thread> threads;
  for (Outputs& own : outputs) {
    for (size_t i = 0; i < own.memory.size(); ++i) own.pointers[i] = own.memory[i].data();  // the copy's
    threads.emplace_back([&, this] {
      EXPECT_STREQ(octet_last_error(), "");
      octet_network* network = nullptr;
      EXPECT_EQ(octet_load("/other.safetensors", "cpu", 1, 1, &network), OCTET_DATA);
      EXPECT_EQ(octet_load(folder_.path("int8.safetensors").c_str(), "cpu", 2, 1, &network), OCTET_OK);
      for (int i = 0; i < 10; ++i) EXPECT_EQ(octet_run(network, images.data(), 2, own.pointers.data()), OCTET_OK);
      octet_free(network);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(last_error(), before);
  for (const Outputs& own : outputs) EXPECT_EQ(own.memory, outputs[0].memory);
}

TEST_F(CApi, TheClassThrowsWithStatusAndText) {
  octet_free(load(random_convolution(6)));
  runtime::Network network(folder_.path("int8.safetensors"), "cpu", 2);
  const octet_tensor& in = network.describe().input;
  const size_t image = static_cast<size_t>(in.height) * in.width * in.channels;
  EXPECT_EQ(network.logits(std::vector<uint8_t>(2 * image)).size(), 2u * network.describe().output[0].channels);
  EXPECT_THROW(network.logits(std::vector<uint8_t>(image + 1)), runtime::Error);
  EXPECT_EQ(network.class_name(1000), "class 1000");
  try {
    runtime::Network none("/none.safetensors");
    FAIL();
  } catch (const runtime::Error& error) {
    EXPECT_EQ(error.status(), OCTET_DATA);
    EXPECT_NE(std::strstr(error.what(), "/none.safetensors"), nullptr) << error.what();
  }
}

}  // namespace
}  // namespace octet::test
