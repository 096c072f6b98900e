// SPDX-License-Identifier: Apache-2.0
// What is timed well and what only once.
#include <gtest/gtest.h>

#include "src/cuda/memory.h"
#include "src/engine/cuda/choice.h"
#include "tests/cuda/gpu.h"

namespace octet::test {
namespace {

/// Launches that time_launches() asks for to time one that fills so many bytes, where everything counts as slow.
int launches_of(size_t bytes) {
  const Stream stream;
  const DeviceBuffer memory(bytes, "memory of a test");
  int launches = 0;
  const auto launch = [&] {
    ++launches;
    fill_device(memory.data(), 0, bytes, stream.get());
  };
  time_launches(stream, launch, {.runs = 3, .slow_ms = 0});
  return launches;
}

constexpr int kOnce = 2;  // to load the kernel, and to time it

// One launch of a kernel of some microseconds takes as long as the host needs to launch it, which made the first
// candidate win.
TEST(TimeLaunches, AShortLaunchIsNotTakenForASlowOne) {
  OCTET_NEEDS_GPU();
  EXPECT_GT(launches_of(256), kOnce);
}

TEST(TimeLaunches, ASlowLaunchIsTimedOnce) {
  OCTET_NEEDS_GPU();
  EXPECT_EQ(launches_of(size_t{4} << 30), kOnce);
}

}  // namespace
}  // namespace octet::test
