// SPDX-License-Identifier: Apache-2.0
// Running a prepared batch size on engine cuda allocates nothing: neither on the host nor on the GPU.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "src/cuda/memory.h"
#include "src/engine/engine.h"
#include "tests/cuda/gpu.h"
#include "tests/engine/count_allocations.h"
#include "tests/engine/random_network.h"

namespace {
long cuda_allocations = 0;
}

// The linker gives these the calls of the functions they are named after (--wrap in CMakeLists.txt).
extern "C" {
cudaError_t __real_cudaMalloc(void** data, size_t bytes);
cudaError_t __wrap_cudaMalloc(void** data, size_t bytes) {
  ++cuda_allocations;
  return __real_cudaMalloc(data, bytes);
}
cudaError_t __real_cudaMallocHost(void** data, size_t bytes);
cudaError_t __wrap_cudaMallocHost(void** data, size_t bytes) {
  ++cuda_allocations;
  return __real_cudaMallocHost(data, bytes);
}
}

namespace octet::test {
namespace {

/// Returns how many allocations of any kind `work` asks for, whether they succeed or not.
template <typename Work>
long counted(const Work& work) {
  const long before = allocations() + cuda_allocations;
  work();
  return allocations() + cuda_allocations - before;
}

TEST(CudaAllocation, BuffersAreCounted) {
  const auto count = [](const auto& make) {
    const long before = cuda_allocations;
    try {
      make();
    } catch (const Error&) {  // no GPU: asked all the same
    }
    return cuda_allocations - before;
  };
  EXPECT_EQ(count([] { const DeviceBuffer buffer(64, "a test"); }), 1);
  EXPECT_EQ(count([] { const PinnedBuffer buffer(64); }), 1);
}

TEST(CudaAllocation, RunAllocatesNothing) {
  OCTET_NEEDS_GPU();
  const std::vector<int> batches = {5, 1, 3};
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const Int8Graph graph = random_network(seed);
    std::unique_ptr<Program> program;
    EXPECT_GT(counted([&] { program = find_engine("cuda").compile(graph, {.max_batch = 5}); }), 0);
    const std::vector<uint8_t> images = random_images(graph, 5, seed);
    const OutputBuffers outputs(graph, 5);
    const PinnedBuffer pinned(images.size());
    for (const int batch : batches) {
      program->prepare(batch);
      program->run(images.data(), batch, outputs.memory());
    }
    const long made = counted([&] {
      for (int turn = 0; turn < 20; ++turn) {
        const uint8_t* from = turn % 2 == 0 ? images.data() : pinned.data();
        program->run(from, batches[turn % 3], outputs.memory());
      }
    });
    EXPECT_EQ(made, 0) << "seed " << seed;
  }
}

}  // namespace
}  // namespace octet::test
