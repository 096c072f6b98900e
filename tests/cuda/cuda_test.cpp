// SPDX-License-Identifier: Apache-2.0
// Buffers, streams, events and graphs on the GPU; errors say what octet was doing.
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/cuda/device.h"
#include "src/cuda/memory.h"
#include "src/cuda/stream.h"
#include "tests/cuda/gpu.h"

namespace octet {
namespace {

TEST(Cuda, StatusSaysWhyOrWhat) {
  const GpuStatus& status = gpu_status();
  if (status.usable) {
    EXPECT_GE(status.capability, kOldestCapability);
    EXPECT_GT(status.multiprocessors, 0);
  } else {
    EXPECT_FALSE(status.reason.empty());
  }
}

TEST(Cuda, ANumberThatNoGpuHasIsAReasonThatSaysHowMany) {
  const GpuStatus& status = gpu_status(99);
  EXPECT_FALSE(status.usable);
  if (!gpu_status().usable) {
    EXPECT_EQ(status.reason, gpu_status().reason);
    EXPECT_EQ(current_gpu(), 0);
    EXPECT_THROW(GpuGuard(0), Error);
    return;
  }
  EXPECT_NE(status.reason.find("there is no GPU 99"), std::string::npos) << status.reason;
  const int count = gpu_status().visible;
  const std::string many = count == 1 ? "the only one is number 0" : "there are " + std::to_string(count);
  EXPECT_NE(status.reason.find(many), std::string::npos) << status.reason;
  EXPECT_THROW(GpuGuard(99), Error);
}

int runtime_gpu() {
  int gpu = -1;
  EXPECT_EQ(cudaGetDevice(&gpu), cudaSuccess);
  return gpu;
}

int gpu_of(const void* memory) {
  cudaPointerAttributes attributes{};
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, memory), cudaSuccess);
  return attributes.device;
}

TEST(Cuda, AGuardChoosesAGpuAndPutsTheThreadsOwnBack) {
  OCTET_NEEDS_GPUS(2);
  const auto both_ways = [](int own, int other) {
    const GpuGuard on_other(other);
    EXPECT_EQ(std::pair(current_gpu(), runtime_gpu()), std::pair(other, other));
    EXPECT_EQ(gpu_of(DeviceBuffer(64, "a test").data()), other);
    {
      const GpuGuard inside(own);
      EXPECT_EQ(std::pair(current_gpu(), runtime_gpu()), std::pair(own, own));
      EXPECT_EQ(gpu_of(DeviceBuffer(64, "a test").data()), own);
    }
    EXPECT_EQ(std::pair(current_gpu(), runtime_gpu()), std::pair(other, other));
  };
  std::thread([&] {  // has chosen none
    both_ways(0, 1);
    EXPECT_EQ(std::pair(current_gpu(), runtime_gpu()), std::pair(0, 0));
  })
      .join();
  std::thread([&] {
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    both_ways(1, 0);
    EXPECT_EQ(std::pair(current_gpu(), runtime_gpu()), std::pair(1, 1));
    EXPECT_EQ(gpu_of(DeviceBuffer(64, "a test").data()), 1);
  }).join();
}

/// Whether CUDA has begun to use a GPU in this process: that takes some hundred MB of it.
bool in_use(int gpu) {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  const auto state = reinterpret_cast<int (*)(int, unsigned*, int*)>(::dlsym(driver, "cuDevicePrimaryCtxGetState"));
  unsigned flags = 0;
  int active = -1;
  EXPECT_EQ(state(gpu, &flags, &active), 0);
  return active != 0;
}

TEST(CudaDeathTest, AGuardLeavesTheGpuAloneThatItsThreadComesFrom) {  // in a process of its own, which has used none
  OCTET_NEEDS_GPUS(2);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto use_the_second = [] {
    {
      const GpuGuard on_second(1);
      const DeviceBuffer memory(64, "a test");
      const Stream stream;
    }
    if (in_use(0) || !in_use(1)) return 1;
    return runtime_gpu() == 0 && !in_use(0) ? 0 : 2;
  };
  EXPECT_EXIT(std::exit(use_the_second()), ::testing::ExitedWithCode(0), "");
}

TEST(Cuda, ReplaysACapturedCopy) {
  OCTET_NEEDS_GPU();
  const Stream stream;
  const size_t bytes = 1 << 16;
  DeviceBuffer from(bytes, "a test"), to(bytes, "a test");
  PinnedBuffer host(bytes);
  for (size_t i = 0; i < bytes; ++i) host.data()[i] = static_cast<uint8_t>(i * 7);
  fill_device(to.data(), 0, bytes, stream.get());
  std::vector<uint8_t> back(bytes);
  const CapturedGraph graph(stream, [&] { copy_to_device(from.data(), host.data(), bytes, stream.get()); });
  copy_to_host(back.data(), to.data(), bytes, stream.get());
  stream.wait("reading zeros");
  EXPECT_EQ(back, std::vector<uint8_t>(bytes, 0));
  graph.replay(stream.get());
  copy_to_host(back.data(), from.data(), bytes, stream.get());
  stream.wait("reading the copy");
  EXPECT_EQ(back, std::vector<uint8_t>(host.data(), host.data() + bytes));
}

TEST(Cuda, DrawsAsManyWattsAsGpusDo) {
  OCTET_NEEDS_GPU();
  const std::optional<double> begun = gpu_joules();
  if (!begun) GTEST_SKIP() << "needs NVML and a GPU that counts joules";
  const Stream stream;
  const size_t bytes = size_t{1} << 28;
  DeviceBuffer memory(bytes, "a test");
  const auto start = std::chrono::steady_clock::now();
  double seconds = 0;
  while (seconds < 2) {
    for (int i = 0; i < 100; ++i) fill_device(memory.data(), i, bytes, stream.get());
    stream.wait("filling");
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  const double watts = (*gpu_joules() - *begun) / seconds;
  EXPECT_GT(watts, 20);
  EXPECT_LT(watts, 1500);
}

TEST(Cuda, OutOfMemoryNamesSizes) {
  OCTET_NEEDS_GPU();
  try {
    DeviceBuffer(gpu_status().memory_bytes * 2, "activations of 512 images");
    FAIL() << "twice the GPU's memory was allocated";
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("activations of 512 images do not fit"), std::string::npos) << what;
    EXPECT_NE(what.find("are free"), std::string::npos) << what;
  }
}

}  // namespace
}  // namespace octet
