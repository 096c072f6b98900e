// run() allocates nothing: every operator new of this test program is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "src/engine/engine.h"
#include "tests/engine/random_network.h"

namespace {
std::atomic<long> allocations{0};

void* counted(std::size_t bytes) {
  ++allocations;
  void* memory = std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace octet::test {
namespace {

TEST(CpuEngine, RunDoesNotAllocate) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const Int8Graph graph = random_network(seed);
    const auto program = find_engine("cpu").compile(graph, {.max_batch = 5, .threads = 2});
    const std::vector<uint8_t> images = random_images(graph, 5, seed);
    std::vector<float> logits(5 * static_cast<size_t>(graph.classes()));
    const long before = allocations;
    program->run(images.data(), 5, logits.data());
    EXPECT_EQ(allocations - before, 0) << "seed " << seed;
  }
  EXPECT_GT(allocations, 0);
}

}  // namespace
}  // namespace octet::test
