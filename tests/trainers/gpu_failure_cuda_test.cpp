// Out of memory and a GPU that fails: said in words, with the last good state kept.
#include "trainers/gpu_failure.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <regex>

#include "src/common/files.h"
#include "tests/cuda/gpu.h"
#include "tests/trainers/training.h"

namespace octet {
namespace {

using testing_trainers::Folder;
using testing_trainers::message_of;
using testing_trainers::run_and_stop;
using testing_trainers::short_recipe;
using testing_trainers::Training;

const at::Device kGpu{at::kCUDA, 0};

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
  again.data = data;  // as a user would go on: the same pictures lie on the GPU
  again.run();
  EXPECT_EQ(again.epochs.size(), 1u);
}

/// Trains, fails the GPU in epoch 2 and ends as octet does.
[[noreturn]] void train_on_a_failing_gpu(const std::string& state) {
  Training training(short_recipe(), state, false, kGpu);
  int steps = 0;
  training.phase.stop = [&] {
    if (++steps == 6)
      at::zeros({4}, kGpu).index_select(0, at::full({1}, 1 << 20, at::TensorOptions(kGpu).dtype(at::kLong)));
    return false;
  };
  try {
    training.run();
  } catch (const Error& error) {
    std::fprintf(stderr, "octet: %s\n", error.what());
    std::_Exit(static_cast<int>(error.code()));
  }
  std::_Exit(0);
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

}  // namespace
}  // namespace octet
