// run() allocates nothing: every operator new of this test program is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "src/engine/aligned_buffer.h"
#include "src/engine/engine.h"
#include "tests/engine/random_network.h"

namespace {
std::atomic<long> allocations{0};

void* counted(std::size_t bytes) noexcept {
  ++allocations;
  return std::malloc(bytes > 0 ? bytes : 1);
}

void* counted(std::size_t bytes, std::align_val_t alignment) noexcept {
  ++allocations;
  const std::size_t unit = static_cast<std::size_t>(alignment);
  return std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
}

void* checked(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

/// Not inlined: GCC would see free() beside an operator new that it did not inline, and warn of a mismatch.
[[gnu::noinline]] void release(void* memory) { std::free(memory); }
}  // namespace

// All forms, as the sanitizers have forms of their own that do not end in ours: an aligned new would go uncounted, and
// a nothrow new (std::stable_sort) would be theirs while its delete is ours.
void* operator new(std::size_t bytes) { return checked(counted(bytes)); }
void* operator new[](std::size_t bytes) { return checked(counted(bytes)); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) { return checked(counted(bytes, alignment)); }
void* operator new[](std::size_t bytes, std::align_val_t alignment) { return checked(counted(bytes, alignment)); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { release(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

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

TEST(CpuEngine, AlignedMemoryIsCountedToo) {
  const long before = allocations;
  const AlignedBuffer buffer(64);
  EXPECT_EQ(allocations - before, 1);
}

}  // namespace
}  // namespace octet::test
