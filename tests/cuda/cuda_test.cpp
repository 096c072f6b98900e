// Buffers, streams, events and graphs on the GPU; errors say what octet was doing.
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "src/common/error.h"
#include "src/cuda/energy.h"
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
