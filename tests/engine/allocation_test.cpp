// SPDX-License-Identifier: Apache-2.0
// run() allocates nothing: every operator new of this test program is counted.
#include <gtest/gtest.h>

#include "src/engine/engine.h"
#include "src/engine/memory_plan.h"
#include "tests/engine/count_allocations.h"
#include "tests/engine/random_network.h"

namespace octet::test {
namespace {

TEST(CpuEngine, RunDoesNotAllocate) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const Int8Graph graph = random_network(seed);
    const auto program = find_engine("cpu").compile(graph, {.max_batch = 9, .threads = 2});
    const std::vector<uint8_t> images = random_images(graph, 9, seed);
    const OutputBuffers outputs(graph, 9);
    const long before = allocations();
    program->run(images.data(), 9, outputs.memory());
    EXPECT_EQ(allocations() - before, 0) << "seed " << seed;
  }
  EXPECT_GT(allocations(), 0);
}

TEST(CpuEngine, AlignedMemoryIsCountedToo) {
  const long before = allocations();
  const AlignedBuffer buffer(64);
  EXPECT_EQ(allocations() - before, 1);
}

}  // namespace
}  // namespace octet::test
