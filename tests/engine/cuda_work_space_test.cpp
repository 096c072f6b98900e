// SPDX-License-Identifier: Apache-2.0
// Engine cuda: all batch sizes share one work space, and CUDA graphs follow it when it moves.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "src/base/error.h"
#include "src/cuda/memory.h"
#include "src/engine/cuda/cuda_program.h"
#include "src/engine/engine.h"
#include "tests/cuda/gpu.h"
#include "tests/engine/random_network.h"

namespace octet::test {
namespace {

/// Bytes of scratch for a number of images.
using ScratchBytes = std::function<size_t(int)>;
/// The scratch that the last launch of each batch size was given, also one that was captured.
using ScratchSeen = std::map<int, const void*>;

/// A step of the engine that asks for scratch and overwrites it.
class GreedyStep final : public CudaStep {
 public:
  GreedyStep(std::unique_ptr<CudaStep> step, ScratchBytes scratch, ScratchSeen& seen)
      : step_(std::move(step)), scratch_(std::move(scratch)), seen_(seen) {}
  std::string kernel(int images) const override { return step_->kernel(images); }
  void prepare(const CudaStepData& data, const Stream& stream) override { step_->prepare(data, stream); }
  size_t scratch_bytes(int images) const override { return scratch_(images); }
  size_t zeroed_bytes(int images) const override { return step_->zeroed_bytes(images); }
  size_t constant_bytes() const override { return step_->constant_bytes(); }
  void launch(const CudaStepData& data, CudaStream stream) const override {
    seen_[data.images] = data.scratch;
    fill_device(data.scratch, 0xFF, scratch_(data.images), stream);
    step_->launch(data, stream);
  }

 private:
  std::unique_ptr<CudaStep> step_;
  ScratchBytes scratch_;
  ScratchSeen& seen_;
};

CudaStepFactory greedy_steps(const ScratchBytes& scratch, ScratchSeen& seen) {
  return [&seen, scratch](const Lowering& lowering, int node) -> std::unique_ptr<CudaStep> {
    std::unique_ptr<CudaStep> step = make_cuda_step(lowering, node, "auto");
    if (!step) return nullptr;
    return std::make_unique<GreedyStep>(std::move(step), scratch, seen);
  };
}

GroupKernels no_groups(const Lowering&, const NodeGroup&) { return nullptr; }

TEST(CudaWorkSpace, GraphsFollowItWhenAnotherBatchSizeMakesItGrow) {
  OCTET_NEEDS_GPU();
  constexpr int kMost = 8;
  const Int8Graph graph = random_network(3);
  const std::vector<uint8_t> images = random_images(graph, kMost, 3);
  const OutputBuffers expected(graph, kMost);
  find_engine("cpu").compile(graph, {.max_batch = kMost, .threads = 1})->run(images.data(), kMost, expected.memory());

  const std::map<int, size_t> megabytes = {{kMost, 1}, {3, 4}, {1, 64}};
  ScratchSeen seen;
  CudaProgram program(graph, {.max_batch = kMost},
                      greedy_steps([&](int batch) { return megabytes.at(batch) << 20; }, seen), no_groups);
  const auto expect_same = [&](int batch) {
    const OutputBuffers given(graph, batch);
    program.run(images.data(), batch, given.memory(), nullptr);
    for (size_t i = 0; i < graph.outputs.size(); ++i) {
      EXPECT_EQ(std::memcmp(given[i].data(), expected[i].data(), given[i].size()), 0) << "batch " << batch;
    }
  };
  expect_same(kMost);
  const void* first = seen.at(kMost);
  expect_same(1);
  EXPECT_NE(seen.at(1), first) << "64 MB where there was 1 MB";
  expect_same(kMost);
  EXPECT_EQ(seen.at(kMost), seen.at(1)) << "the graph was not captured again";
  const void* grown = seen.at(1);
  expect_same(3);
  EXPECT_EQ(seen.at(3), grown) << "4 MB fit into 64 MB";
  expect_same(kMost);
  expect_same(1);
}

TEST(CudaWorkSpace, OutOfMemorySaysWhatWasPlannedAndWhatFits) {
  OCTET_NEEDS_GPU();
  const Int8Graph graph = random_network(1);
  const size_t eighth = gpu_status().memory_bytes / 8;
  ScratchSeen seen;
  try {
    const CudaProgram program(graph, {.max_batch = 16}, greedy_steps([&](int batch) { return eighth * batch; }, seen),
                              no_groups);
    FAIL() << "allocated twice the GPU's memory";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::promise);
    const std::string what = error.what();
    for (const char* part : {"node '", "work space of 16 images do not fit", "planned for 16 images: activations"}) {
      EXPECT_NE(what.find(part), std::string::npos) << what;
    }
    const size_t at = what.find("a batch of ");
    ASSERT_NE(at, std::string::npos) << what;
    const int fits = std::stoi(what.substr(at + std::strlen("a batch of ")));
    EXPECT_GE(fits, 1);
    EXPECT_LE(fits, 7);
  }
  EXPECT_TRUE(seen.empty()) << "a step was launched without its scratch";
}

}  // namespace
}  // namespace octet::test
