// SPDX-License-Identifier: Apache-2.0
// The clock runs on the GPU: in a recorded step, too, which the host replays without calling it.
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <chrono>

#include "src/train/model/step_graph.h"
#include "tests/cuda/gpu.h"
#include "trainers/gpu.h"
#include "trainers/parallel/groups.h"

namespace octet {
namespace {

TEST(ExchangeClockCuda, CountsWhatARecordedStepWaitsFor) {
  OCTET_NEEDS_GPU();
  const at::Device gpu{at::kCUDA, 0};
  const OwnStream stream(gpu);
  ExchangeClock clock(gpu);
  StepGraph graph(/*capture=*/true);
  at::Tensor x = at::rand({4096, 4096}, gpu);
  const auto long_work = [&] {
    for (int i = 0; i < 8; ++i) x.copy_(at::mm(x, x).div_(4096));
  };
  double before = clock.seconds();
  EXPECT_EQ(before, 0);
  for (int step = 0; step < 2 * StepGraph::kWarmUps + 2; ++step) {
    const auto start = std::chrono::steady_clock::now();
    graph.run(0, [&] {
      long_work();  // not counted
      clock.time(long_work);
    });
    const double counted = clock.seconds() - before;
    const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_GT(counted, 1e-4) << step;  // 8 products of 137 Gflop: more than a millisecond on any GPU
    EXPECT_LT(counted, wall) << step;
    if (step > StepGraph::kWarmUps) EXPECT_LT(counted, 0.8 * wall) << step;  // half of it
    before += counted;
  }
}

}  // namespace
}  // namespace octet
