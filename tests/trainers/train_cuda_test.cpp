// SPDX-License-Identifier: Apache-2.0
// The training loop on a GPU: captured steps give the eager ones' bits, a stopped run ends with the same bits as a
// whole one, states travel between devices, and divergence is found although nobody waits for it.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "src/base/files.h"
#include "tests/cuda/gpu.h"
#include "tests/trainers/training.h"
#include "trainers/gpu.h"

namespace octet {
namespace {

using testing_trainers::expect_same_end;
using testing_trainers::Folder;
using testing_trainers::kGpu;
using testing_trainers::message_of;
using testing_trainers::recipe_of;
using testing_trainers::run_and_stop;
using testing_trainers::short_recipe;
using testing_trainers::Training;
using testing_trainers::Variant;

class TrainCuda : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    OCTET_NEEDS_GPU();
    set_switches(kGpu, {.deterministic = true});
    recipe_ = recipe_of(GetParam());
    // 24 steps; in QAT the mode changes after 12 and 18. On codes 48: steps run on codes from the 37th and are replayed
    // from the 41st, after a validation and before two more, which see other ranges.
    recipe_.epochs = on_codes() ? 12 : 6;
  }

  static bool on_codes() { return GetParam().forward == QatForward::int8; }

  std::unique_ptr<Training> training(const std::string& state, bool graph) const {
    auto training = std::make_unique<Training>(recipe_, folder_.path() + "/" + state, GetParam(), kGpu);
    training->phase.cuda.graph = graph;
    training->phase.cuda.resident_images = GetParam().resident_images;
    return training;
  }

  const Folder folder_{"train_cuda"};
  OptimizerRecipe recipe_;
};

TEST_P(TrainCuda, ReplayedStepsGiveTheBitsOfEagerOnes) {
  const auto eager = training("eager.safetensors", false), replayed = training("replayed.safetensors", true);
  eager->run();
  replayed->run();
  expect_same_end(*eager, *replayed);
  EXPECT_LT(eager->epochs.back().train_loss, 0.9 * eager->epochs.front().train_loss);
  EXPECT_GT(eager->epochs.back().gpu_memory_bytes, 0u);
}

TEST_P(TrainCuda, ContinuesToTheSameBits) {
  const auto whole = training("whole.safetensors", true);
  whole->run();
  for (const int step : on_codes() ? std::vector<int>{14, 38, 42} : std::vector<int>{2, 14}) {
    const auto first = training("state.safetensors", true), second = training("state.safetensors", true);
    run_and_stop(*first, step);
    second->phase.resume = true;
    second->run();
    SCOPED_TRACE("stopped after step " + std::to_string(step));
    expect_same_end(*whole, *second);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Train, TrainCuda,
    testing::Values(
        Variant{.name = "fp32"}, Variant{.name = "fp16", .precision = Precision::fp16},
        Variant{.name = "bf16_ema", .precision = Precision::bf16, .ema = 0.9},
        Variant{.name = "fp16_adamw_clip",
                .optimizer = OptimizerKind::adamw,
                .precision = Precision::fp16,
                .clip_gradient = 0.5},
        Variant{.name = "fp16_uploaded", .precision = Precision::fp16, .resident_images = ResidentImages::off},
        Variant{.name = "contiguous", .channels_last = false}, Variant{.name = "qat", .qat = true},
        Variant{.name = "qat_fp16", .qat = true, .precision = Precision::fp16},
        Variant{.name = "qat_learned", .qat = true, .learn = true},
        Variant{.name = "lsq_plus",
                .qat = true,
                .learn = true,
                .edges = EdgeScales::lsq_plus,
                .precision = Precision::fp16,
                .ema = 0.9},
        Variant{.name = "qat_learned_fp16_ema", .qat = true, .learn = true, .precision = Precision::fp16, .ema = 0.9},
        Variant{.name = "qat_sparse_fp16", .qat = true, .sparse = true, .precision = Precision::fp16},
        Variant{.name = "qat_sparse_learned", .qat = true, .learn = true, .sparse = true},
        Variant{.name = "qat_bf16_ema", .qat = true, .precision = Precision::bf16, .ema = 0.9},
        Variant{.name = "qat_int8", .qat = true, .forward = QatForward::int8},
        Variant{.name = "qat_int8_fp16_ema",
                .qat = true,
                .forward = QatForward::int8,
                .precision = Precision::fp16,
                .ema = 0.9},
        Variant{.name = "qat_int8_learned_fp16_ema",
                .qat = true,
                .learn = true,
                .forward = QatForward::int8,
                .precision = Precision::fp16,
                .ema = 0.9}),
    [](const auto& info) { return info.param.name; });

TEST(TrainDevices, AStateOfOneDeviceIsContinuedOnTheOther) {
  OCTET_NEEDS_GPU();
  for (const bool gpu_first : {true, false}) {
    const Folder folder("devices");
    const std::string state = folder.path() + "/state.safetensors";
    OptimizerRecipe recipe = short_recipe();
    recipe.ema = 0.9;
    recipe.precision = Precision::fp16;
    const at::Device cpu(at::kCPU);
    Training first(recipe, state, false, gpu_first ? kGpu : cpu), second(recipe, state, false, gpu_first ? cpu : kGpu);
    run_and_stop(first, 6);
    second.phase.resume = true;
    second.run();
    ASSERT_EQ(second.epochs.size(), 2u);
    EXPECT_LT(second.epochs.back().train_loss, second.epochs.front().train_loss);
  }
}

TEST(TrainDevices, BothLearnAlike) {
  OCTET_NEEDS_GPU();
  set_switches(kGpu, {.tf32 = false});
  const Folder folder("alike");
  Training cpu(short_recipe(), folder.path() + "/cpu.safetensors", false);
  Training gpu(short_recipe(), folder.path() + "/gpu.safetensors", false, kGpu);
  for (Training* training : {&cpu, &gpu}) {
    for (Node& node : training->graph.nodes) node.dropout = 0;  // the devices' generators differ
    training->run();
  }
  // The same images in the same order: sums in another order are all that differs in three epochs.
  EXPECT_NEAR(cpu.epochs.front().train_loss, gpu.epochs.front().train_loss, 1e-4);
  EXPECT_NEAR(cpu.epochs.back().train_loss, gpu.epochs.back().train_loss, 1e-3);
}

TEST(TrainDevices, NonFiniteLossOnTheGpuNamesStepAndLayer) {
  OCTET_NEEDS_GPU();
  const Folder folder("nan");
  const std::string state = folder.path() + "/state.safetensors";
  OptimizerRecipe recipe = short_recipe();
  recipe.epochs = 12;
  recipe.batch_size = 4;  // 32 steps an epoch: replayed ones too
  Training training(recipe, state, false, kGpu);
  run_and_stop(training, 32);
  const std::string good = read_file(state);
  training.phase.resume = true;
  int steps = 0;
  training.phase.stop = [&] {  // after the 11th step of epoch 2
    if (++steps == 11) {
      const at::Tensor weight = training.weights.at("conv2.weight").detach();
      weight[0][0][0][0].fill_(std::numeric_limits<float>::quiet_NaN());
    }
    return false;
  };
  const std::string message = message_of(ExitCode::promise, [&] { training.run(); });
  EXPECT_NE(message.find("first at node 'conv2', its weights"), std::string::npos) << message;
  EXPECT_NE(message.find("epoch 2, step 12"), std::string::npos) << message;
  EXPECT_NE(message.find("Lower train.learning_rate, now 0.05"), std::string::npos) << message;
  EXPECT_EQ(read_file(state), good);
}

}  // namespace
}  // namespace octet
