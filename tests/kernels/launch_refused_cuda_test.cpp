// SPDX-License-Identifier: Apache-2.0
// Blocks and clusters too large for any GPU are refused as such, and leave nothing behind.
#include <gtest/gtest.h>

#include "kernels/core/cuda.h"
#include "src/cuda/device.h"
#include "src/cuda/stream.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/refused_launches.h"

namespace octet {
namespace {

constexpr int kMegabyte = 1 << 20;  // four times the shared memory of a multiprocessor

TEST(LaunchRefused, BlocksThatAreTooLarge) {
  OCTET_NEEDS_GPU();
  const Stream stream;
  launch_empty({}, stream.get());
  EXPECT_THROW(launch_empty({.threads = 2048}, stream.get()), kernels::LaunchRefused);
  EXPECT_THROW(launch_empty({.shared_bytes = kMegabyte}, stream.get()), kernels::LaunchRefused);
  EXPECT_THROW(allow_shared_bytes(kMegabyte), kernels::LaunchRefused);
  launch_empty({}, stream.get());
  stream.wait("a launch after those that were refused");
}

// No GPU takes more than 16 blocks, and 8 where a kernel does not ask for more.
TEST(LaunchRefused, ClustersThatAreTooLarge) {
  OCTET_NEEDS_GPU();
  if (!kernels::cuda_code_overlaps()) GTEST_SKIP() << "needs a GPU with clusters (compute capability 9.0)";
  const Stream stream;
  launch_empty_cluster(8, stream.get());
  EXPECT_THROW(launch_empty_cluster(32, stream.get()), kernels::LaunchRefused);
  launch_empty_cluster(8, stream.get());
  stream.wait("a launch after one that was refused");
}

// What needs no GPU.
TEST(LaunchRefused, TheAnswerToSuchAClusterIsARefusal) {
  EXPECT_THROW(report_cluster_refused(), kernels::LaunchRefused);
}

}  // namespace
}  // namespace octet
