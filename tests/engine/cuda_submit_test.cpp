// SPDX-License-Identifier: Apache-2.0
// Engine cuda: batches submitted ahead give the bytes of run(), and images travel while the GPU computes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "src/cuda/memory.h"
#include "src/engine/engine.h"
#include "tests/cuda/gpu.h"
#include "tests/engine/random_network.h"
#include "tests/engine/same_bytes.h"
#include "tests/error_of.h"

namespace octet::test {
namespace {

struct Work {
  int batch = 0;
  std::vector<uint8_t> images;
  std::vector<std::vector<uint8_t>> expected;
};

/// Batches of all sizes up to `most`, and what run() gives for them.
std::vector<Work> work_of(const Int8Graph& graph, int most, int count, uint64_t seed) {
  const auto program = find_engine("cuda").compile(graph, {.max_batch = most});
  Random random(seed);
  std::vector<Work> work;
  for (int i = 0; i < count; ++i) {
    const int batch = random.between(1, most);
    std::vector<uint8_t> images = random_images(graph, batch, seed + i);
    std::vector<std::vector<uint8_t>> expected = outputs_of(*program, graph, images, batch);
    work.push_back({batch, std::move(images), std::move(expected)});
  }
  return work;
}

/// Every batch is submitted before the one before it is collected; `run` in between now and then.
void expect_same(const Int8Graph& graph, int most, const std::vector<Work>& work, const std::string& where) {
  const auto program = find_engine("cuda").compile(graph, {.max_batch = most});
  const auto collect = [&](const Work& w) {
    const OutputBuffers outputs(graph, w.batch);
    program->collect(outputs.memory());
    EXPECT_TRUE(outputs.all() == w.expected) << where << ", batch of " << w.batch;
  };
  program->submit(work[0].images.data(), work[0].batch);
  for (size_t i = 1; i < work.size(); ++i) {
    program->submit(work[i].images.data(), work[i].batch);
    if (i % 5 == 0) {
      EXPECT_TRUE(outputs_of(*program, graph, work[0].images, work[0].batch) == work[0].expected) << where << ", run()";
    }
    collect(work[i - 1]);
  }
  collect(work.back());
  EXPECT_NE(error_of([&] { program->collect(OutputBuffers(graph, 1).memory()); }).find("nothing to collect"),
            std::string::npos);
}

TEST(CudaSubmit, GivesTheBytesOfRun) {
  OCTET_NEEDS_GPU();
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Int8Graph graph = random_network(seed);
    expect_same(graph, 12, work_of(graph, 12, 15, seed), "seed " + std::to_string(seed));
  }
}

// Large images and a short network: a copy that did not wait would overwrite images in use, or be read too early.
TEST(CudaSubmit, LargeImagesWaitForTheirTurn) {
  OCTET_NEEDS_GPU();
  Random random(8);
  NetworkBuilder network(random, {3, 256, 256});
  const Int8Graph graph = network.finish(network.global_avg_pool(network.convolution(0)));
  expect_same(graph, 64, work_of(graph, 64, 12, 8), "ordinary memory");

  constexpr int kBatch = 64, kBatches = 6;
  const size_t bytes = graph.input_shape().elements() * kBatch;
  const PinnedBuffer pinned(bytes * kBatches);
  const std::vector<uint8_t> images = random_images(graph, kBatch * kBatches, 3);
  std::memcpy(pinned.data(), images.data(), images.size());
  const auto program = find_engine("cuda").compile(graph, {.max_batch = kBatch});
  std::vector<OutputBuffers> given, expected;
  for (int i = 0; i < kBatches; ++i) given.emplace_back(graph, kBatch), expected.emplace_back(graph, kBatch);
  for (int i = 0; i < kBatches; ++i) program->run(pinned.data() + bytes * i, kBatch, expected[i].memory());
  for (int i = 0; i <= kBatches; ++i) {
    if (i < kBatches) program->submit(pinned.data() + bytes * i, kBatch);
    if (i > 0) program->collect(given[i - 1].memory());
  }
  for (int i = 0; i < kBatches; ++i) EXPECT_TRUE(given[i].all() == expected[i].all()) << "page-locked, batch " << i;
}

// Outputs larger than the pieces in which they travel, with gaps and without, to both kinds of memory: the next batch
// is computed while one is copied, and must not write what is still to be read.
TEST(CudaSubmit, LargeOutputsAreThoseOfTheirBatch) {
  OCTET_NEEDS_GPU();
  constexpr int kBatch = 32, kBatches = 7;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    Random random(seed);
    NetworkBuilder network(random, {3, 128, 128});
    const int convolution = network.convolution(0);
    network.output(convolution);
    const Int8Graph graph = network.finish(convolution);
    const size_t image_bytes = graph.input_shape().elements() * kBatch;
    const std::vector<uint8_t> images = random_images(graph, kBatch * kBatches, seed);
    const auto program = find_engine("cuda").compile(graph, {.max_batch = kBatch});
    std::vector<OutputBuffers> expected;
    for (int i = 0; i < kBatches; ++i) {
      program->run(images.data() + image_bytes * i, kBatch, expected.emplace_back(graph, kBatch).memory());
    }
    const OutputBuffers ordinary(graph, kBatch);
    std::vector<PinnedBuffer> pinned;
    std::vector<void*> page_locked;
    for (const std::vector<uint8_t>& output : ordinary.all()) {
      page_locked.push_back(pinned.emplace_back(output.size()).data());
    }
    for (int i = 0; i <= kBatches; ++i) {
      if (i < kBatches) program->submit(images.data() + image_bytes * i, kBatch);
      if (i == 0) continue;
      const bool to_pinned = i % 2 == 0;
      program->collect(to_pinned ? OutputMemory(page_locked) : ordinary.memory());
      for (size_t output = 0; output < page_locked.size(); ++output) {
        const std::vector<uint8_t>& wanted = expected[i - 1][output];
        const uint8_t* got = to_pinned ? pinned[output].data() : ordinary[output].data();
        EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), got)) << "seed " << seed << ", batch " << i - 1;
      }
    }
  }
}

TEST(CudaSubmit, AProgramMayGoWithBatchesUnderWay) {
  OCTET_NEEDS_GPU();
  const Int8Graph graph = random_network(2);
  const std::vector<uint8_t> images = random_images(graph, 8, 2);
  const auto kept = find_engine("cuda").compile(graph, {.max_batch = 8});
  const std::vector<std::vector<uint8_t>> expected = outputs_of(*kept, graph, images, 8);
  for (int i = 0; i < 20; ++i) {
    const auto program = find_engine("cuda").compile(graph, {.max_batch = 8});
    program->submit(images.data(), 8);
    program->submit(images.data(), 8);
  }
  EXPECT_TRUE(outputs_of(*kept, graph, images, 8) == expected);
}

}  // namespace
}  // namespace octet::test
