// SPDX-License-Identifier: Apache-2.0
// What is queued in two streams, and what throws between them.
#include "trainers/parallel/stages.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/cuda/gpu.h"

namespace octet {
namespace {

/// Lane 1 is busy for some milliseconds, then writes ones; lane 0 reads what it finds when `lanes` are gone.
at::Tensor read_after(bool throws) {
  const at::TensorOptions on_gpu(at::Device(at::kCUDA, 0));
  const at::Tensor a = at::ones({4096, 4096}, on_gpu), values = at::zeros({1024}, on_gpu);
  at::Tensor product = at::empty_like(a);
  try {
    Lanes lanes(a.device());
    Lanes::Row row;
    lanes.fork();
    lanes.queue(1, row, [&] {
      for (int i = 0; i < 20; ++i) at::mm_out(product, a, a);
      values.fill_(1);
    });
    if (throws) throw std::runtime_error("out of memory");
    lanes.join();
  } catch (const std::runtime_error&) {
  }
  return values.clone();
}

TEST(LanesCuda, JoinAlsoWhereSomethingThrows) {
  OCTET_NEEDS_GPU();
  for (const bool throws : {false, true}) EXPECT_EQ(read_after(throws).sum().item<double>(), 1024) << throws;
}

}  // namespace
}  // namespace octet
