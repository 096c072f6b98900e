// SPDX-License-Identifier: Apache-2.0
// Engine cuda on one of several GPUs, from whatever thread: a program stays on its GPU, and its callers keep theirs.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "src/cuda/device.h"
#include "src/engine/engine.h"
#include "tests/cuda/gpu.h"
#include "tests/engine/network_builder.h"
#include "tests/engine/random_network.h"
#include "tests/engine/same_bytes.h"
#include "tests/error_of.h"

namespace octet::test {
namespace {

constexpr int kMost = 6;

void in_a_thread(const std::function<void()>& work) { std::thread(work).join(); }

std::unique_ptr<Program> program_on(int gpu, const Int8Graph& graph) {
  return find_engine("cuda").compile(graph, {.max_batch = kMost, .gpu = gpu});
}

std::vector<std::vector<uint8_t>> expected_of(const Int8Graph& graph, const std::vector<uint8_t>& images, int batch) {
  return outputs_of(*find_engine("reference").compile(graph, {.max_batch = batch}), graph, images, batch);
}

TEST(CudaDevice, LoadsInOneThreadAndRunsInOthers) {
  OCTET_NEEDS_GPU();
  const Int8Graph graph = random_network(11);
  const std::vector<uint8_t> images = random_images(graph, kMost, 11);
  std::unique_ptr<Program> program;
  in_a_thread([&] { program = program_on(kCurrentGpu, graph); });
  for (const int batch : {kMost, 2}) {  // 2: kernels are chosen and a graph is captured in another thread, too
    const auto expected = expected_of(graph, images, batch);
    in_a_thread([&] { EXPECT_EQ(outputs_of(*program, graph, images, batch), expected) << batch; });
    EXPECT_EQ(outputs_of(*program, graph, images, batch), expected) << batch;
  }
  in_a_thread([&] { program.reset(); });
}

TEST(CudaDevice, ANumberThatNoGpuHasIsRefused) {
  OCTET_NEEDS_GPU();
  const std::string refusal = error_of([] { program_on(99, random_network(11)); });
  EXPECT_NE(refusal.find("engine cuda cannot run on this machine: there is no GPU 99"), std::string::npos) << refusal;
}

/// Bytes that are free on a GPU.
size_t free_on(int gpu) {
  const GpuGuard on_gpu(gpu);
  size_t free = 0, total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  return free;
}

TEST(CudaDevice, EveryEntryWorksOnTheProgramsGpuAndLeavesTheCallersAlone) {
  OCTET_NEEDS_GPUS(2);
  const Int8Graph graph = random_network(12);
  const std::vector<uint8_t> images = random_images(graph, kMost, 12);
  const auto expected = expected_of(graph, images, kMost), fewer = expected_of(graph, images, 3);
  for (const int gpu : {0, 1}) {
    for (const int own : {0, 1}) {
      SCOPED_TRACE("program on " + std::to_string(gpu) + ", thread on " + std::to_string(own));
      in_a_thread([&] {
        ASSERT_EQ(cudaSetDevice(own), cudaSuccess);
        const auto still_own = [&](const char* after) {
          int current = -1;
          EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
          EXPECT_EQ(current, own) << "after " << after;
        };
        std::unique_ptr<Program> program = program_on(gpu, graph);
        still_own("compile");
        EXPECT_EQ(outputs_of(*program, graph, images, kMost), expected);
        still_own("run");
        program->prepare(3);
        still_own("prepare");
        const OutputBuffers outputs(graph, 3);
        program->submit(images.data(), 3);
        still_own("submit");
        program->collect(outputs.memory());
        still_own("collect");
        EXPECT_EQ(outputs_of(*program, graph, images, 3), fewer);
        EXPECT_THROW(program->run(images.data(), kMost + 1, outputs.memory()), Error);
        still_own("a refusal");
        EXPECT_EQ(program->time_on_device(2, 3).size(), 3u);
        still_own("time_on_device");
        program->time_layers_on_device(2, 1);
        still_own("time_layers_on_device");
        EXPECT_EQ(trace(*program, graph, images, kMost).outputs, expected);
        still_own("a run with a tap");
        program.reset();
        still_own("the end");
      });
    }
  }
}

TEST(CudaDevice, MemoryIsTheNamedGpus) {
  OCTET_NEEDS_GPUS(2);
  constexpr size_t kEnough = size_t{256} << 20;
  Random random(2);
  NetworkBuilder network(random, {3, 256, 256});
  const Int8Graph graph = network.finish(network.global_avg_pool(network.convolution(0)));
  const int batch = static_cast<int>(kEnough / graph.input_shape().elements()) + 1;
  for (const int gpu : {1, 0}) {
    const size_t here = free_on(gpu), there = free_on(1 - gpu);
    const auto program = find_engine("cuda").compile(graph, {.max_batch = batch, .gpu = gpu});
    EXPECT_GE(here, free_on(gpu) + kEnough) << gpu;
    EXPECT_LT(there, free_on(1 - gpu) + kEnough / 4) << gpu;
  }
}

TEST(CudaDevice, TwoThreadsLoadAndRunOnAGpuEachAtOnce) {
  OCTET_NEEDS_GPUS(2);
  const Int8Graph graph = random_network(13);
  const std::vector<uint8_t> images = random_images(graph, kMost, 13);
  const auto expected = expected_of(graph, images, kMost);
  std::vector<std::thread> threads;
  for (const int gpu : {0, 1}) {
    threads.emplace_back([&, gpu] {
      const auto program = program_on(gpu, graph);
      for (int i = 0; i < 20; ++i) ASSERT_EQ(outputs_of(*program, graph, images, kMost), expected) << gpu;
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CudaDevice, ThreadsLoadAndRunOnOneGpuAtOnce) {
  OCTET_NEEDS_GPU();
  std::vector<std::thread> threads;
  for (const uint64_t seed : {14, 15, 16, 17}) {
    threads.emplace_back([seed] {
      const Int8Graph graph = random_network(seed);
      const std::vector<uint8_t> images = random_images(graph, kMost, seed);
      const auto program = program_on(kCurrentGpu, graph);
      EXPECT_EQ(outputs_of(*program, graph, images, kMost), expected_of(graph, images, kMost)) << seed;
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace octet::test
