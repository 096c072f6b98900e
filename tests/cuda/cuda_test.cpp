// Buffers, streams, events and graphs on the GPU; errors say what octet was doing.
#include <gtest/gtest.h>

#include <vector>

#include "src/common/error.h"
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
