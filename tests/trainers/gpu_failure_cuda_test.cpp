// SPDX-License-Identifier: Apache-2.0
// Out of memory and a GPU that fails: said in words, with the last good state kept.
#include "trainers/loop/failures.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <regex>

#include "src/base/files.h"
#include "tests/cuda/gpu.h"
#include "tests/trainers/training.h"
#include "trainers/gpu.h"
#include "trainers/loop/batches.h"
#include "trainers/run/pipeline.h"
#include "trainers/run/records.h"

namespace octet {
namespace {

using testing_trainers::Folder;
using testing_trainers::kGpu;
using testing_trainers::message_of;
using testing_trainers::run_and_stop;
using testing_trainers::short_recipe;
using testing_trainers::Training;

/// While it lives, LibTorch may hold this many bytes more than it does.
class MemoryLimit {
 public:
  explicit MemoryLimit(size_t more) {
    release_cached(kGpu);
    const GpuMemory memory = gpu_memory(kGpu);
    set(static_cast<double>(memory.held + more) / static_cast<double>(memory.total));
  }
  ~MemoryLimit() { set(1.0); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  static void set(double fraction) { c10::cuda::CUDACachingAllocator::setMemoryFraction(fraction, 0); }
};

TEST(GpuFailure, OutOfMemoryNamesABatchThatFits) {
  OCTET_NEEDS_GPU();
  set_switches(kGpu, {.benchmark = false});
  const Folder folder("memory");
  const std::string state = folder.path() + "/state.safetensors";
  OptimizerRecipe recipe = short_recipe();
  recipe.epochs = 1;
  recipe.batch_size = 1 << 17;                                // about 20 KB an image in a step: 2.6 GB
  const RunData data = testing_trainers::tiny_data(1 << 19);  // enough steps of a smaller batch to be captured, too
  Training training(recipe, state, false, kGpu);
  training.data = data;
  const MemoryLimit limit(1 << 30);
  const std::string message = message_of(ExitCode::promise, [&] { training.run(); });
  EXPECT_NE(message.find("phase float, epoch 1, step 1: the GPU is out of memory with batch_size 131072"),
            std::string::npos)
      << message;
  EXPECT_FALSE(std::filesystem::exists(state));
  std::smatch fits;
  ASSERT_TRUE(std::regex_search(message, fits, std::regex("train.batch_size ([0-9]+) should fit"))) << message;
  OptimizerRecipe smaller = recipe;
  smaller.batch_size = std::stoi(fits[1]);
  EXPECT_GT(smaller.batch_size, recipe.batch_size / 16);
  release_cached(kGpu);
  Training again(smaller, state, false, kGpu);
  again.data = data;  // as a user would go on: the same images lie on the GPU
  again.run();
  EXPECT_EQ(again.epochs.size(), 1u);
}

TEST(GpuMemory, APhaseGivesItsMemoryBack) {
  OCTET_NEEDS_GPU();
  const Folder folder("given_back");
  OptimizerRecipe recipe = short_recipe();
  recipe.epochs = 1;
  recipe.batch_size = 1 << 14;  // about 20 KB an image in a step: 320 MB
  const RunData data = testing_trainers::tiny_data(5 << 14);
  size_t before = 0;
  for (int phase = 0; phase < 2; ++phase) {  // the first sets the libraries up, which keep work space
    Training training(recipe, folder.path() + "/state.safetensors", false, kGpu);
    training.data = data;
    training.run();
    ASSERT_EQ(training.epochs.size(), 1u);
    const size_t held = gpu_memory(kGpu).held;  // with what other tests of this process left
    EXPECT_GT(training.epochs[0].gpu_memory_bytes, held + (size_t{100} << 20));
    if (phase == 1) {
      EXPECT_LE(held, before);
    }
    before = held;
  }
}

TEST(GpuMemory, WhatLibTorchKeepsForReuseIsFreeForResidentImages) {
  OCTET_NEEDS_GPU();
  const RunData data = testing_trainers::tiny_data(1 << 18);  // 16 MB
  constexpr int64_t kLimit = 128 << 20;
  const MemoryLimit limit(kLimit);
  at::zeros({kLimit - (8 << 20)}, at::TensorOptions(kGpu).dtype(at::kByte));  // of an earlier phase
  ASSERT_LT(gpu_memory(kGpu).free, size_t{16} << 20);
  EXPECT_NO_THROW(require_batches(data, {.batch_size = 32, .device = kGpu, .resident_images = ResidentImages::on}));
}

/// Launches a kernel that fails; nothing works on the GPU in this process from when it does.
void fail_the_gpu() {
  at::zeros({4}, kGpu).index_select(0, at::full({1}, 1 << 20, at::TensorOptions(kGpu).dtype(at::kLong)));
}

/// Trains and ends as octet does.
[[noreturn]] void end_as_octet(const std::function<void()>& train) {
  try {
    train();
  } catch (const Error& error) {
    std::fprintf(stderr, "octet: %s\n", error.what());
    std::exit(static_cast<int>(error.code()));  // with the libraries' destructors
  }
  std::exit(0);
}

/// Fails the GPU in epoch 2.
[[noreturn]] void train_on_a_failing_gpu(const std::string& state) {
  end_as_octet([&] {
    Training training(short_recipe(), state, false, kGpu);
    int steps = 0;
    training.phase.stop = [&] {
      if (++steps == 6) fail_the_gpu();
      return false;
    };
    training.run();
  });
}

TEST(GpuFailureDeathTest, AFailedGpuKeepsTheLastStateAndSaysHowToGoOn) {
  OCTET_NEEDS_GPU();
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string state = testing::TempDir() + "octet_failing_gpu.safetensors";
  EXPECT_EXIT(train_on_a_failing_gpu(state), testing::ExitedWithCode(1),
              "octet: phase float, epoch 2, step .*The last good state is kept in .*continue with --resume");
  // In this process the GPU works: the state of epoch 1 is whole.
  Training resumed(short_recipe(), state, false, kGpu);
  resumed.phase.resume = true;
  resumed.run();
  ASSERT_EQ(resumed.epochs.size(), 3u);  // epoch 1 was saved before its validation
  EXPECT_EQ(resumed.epochs[0].epoch, 0);
  std::filesystem::remove(state);
}

/// Validation images; with the one in the middle the GPU fails.
class FailingImages : public testing_trainers::Quadrants {
 public:
  using Quadrants::Quadrants;
  Image read(size_t index) const override {
    if (index == size() / 2) fail_the_gpu();
    return Quadrants::read(index);
  }
};

Run run_with_averages(const std::string& folder) {
  Recipe recipe = testing_trainers::tiny_recipe();
  recipe.train.ema = 0.9;  // validation sees the averages, which change places with the weights again
  recipe.evaluate.batch_size = 8;
  const RunDirectory directory{folder};
  std::filesystem::create_directories(directory.checkpoints());
  return open_run(recipe, directory, kGpu);
}

/// Fails the GPU in the validation after epoch 1.
[[noreturn]] void validate_on_a_failing_gpu(const std::string& folder) {
  end_as_octet([&] {
    Run run = run_with_averages(folder);
    run.data.validation_set = std::make_shared<FailingImages>(64, 2);
    run.data.validation.resize(64);
    std::iota(run.data.validation.begin(), run.data.validation.end(), size_t{0});
    run.data.workers = 0;  // the images are read between two batches on the GPU
    Weights weights = starting_weights(run);
    train_float(run, weights, /*resume=*/false);
  });
}

TEST(GpuFailureDeathTest, AFailureInValidationKeepsTheLastStateToo) {
  OCTET_NEEDS_GPU();
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string folder = testing::TempDir() + "octet_failing_validation";
  std::filesystem::remove_all(folder);
  EXPECT_EXIT(validate_on_a_failing_gpu(folder), testing::ExitedWithCode(1),
              "octet: phase float, epoch 1, .*The last good state is kept in .*continue with --resume");
  auto run = run_with_averages(folder);
  EXPECT_TRUE(read_metrics(run.directory.metrics()).empty());  // no epoch was validated
  Weights weights = starting_weights(run);
  train_float(run, weights, /*resume=*/true);
  EXPECT_EQ(read_metrics(run.directory.metrics()).size(), 2u);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace octet
