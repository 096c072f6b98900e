// The training loop on a GPU: captured steps give the eager ones' bits, a stopped run ends with the same bits as a
// whole one, states travel between devices, and divergence is found although nobody waits for it.
#include <gtest/gtest.h>

#include <limits>

#include "src/common/files.h"
#include "tests/cuda/gpu.h"
#include "tests/trainers/training.h"
#include "trainers/gpu.h"

namespace octet {
namespace {

using testing_trainers::expect_same_bits;
using testing_trainers::Folder;
using testing_trainers::message_of;
using testing_trainers::run_and_stop;
using testing_trainers::short_recipe;
using testing_trainers::Training;

const at::Device kGpu{at::kCUDA, 0};

struct Case {
  std::string name;
  bool qat = false;
  std::string precision = "fp32", optimizer = "sgd";
  double ema = 0, clip_gradient = 0;
  std::string resident_images = "auto";
  bool channels_last = true;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class TrainCuda : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    OCTET_NEEDS_GPU();
    set_switches(kGpu, {.deterministic = true});
    recipe_ = short_recipe();
    recipe_.epochs = 6;  // 24 steps; in QAT the mode changes after 12 and 18
    recipe_.precision = GetParam().precision;
    recipe_.optimizer = GetParam().optimizer;
    recipe_.ema = GetParam().ema;
    recipe_.clip_gradient = GetParam().clip_gradient;
    recipe_.channels_last = GetParam().channels_last;
    recipe_.label_smoothing = 0.1;
    recipe_.warmup_epochs = 1;
    if (recipe_.optimizer == "adamw") recipe_.learning_rate = 0.005;
  }

  std::unique_ptr<Training> training(const std::string& state, bool graph) const {
    auto training = std::make_unique<Training>(recipe_, folder_.path() + "/" + state, GetParam().qat, kGpu);
    training->phase.cuda.graph = graph;
    training->phase.cuda.resident_images = GetParam().resident_images;
    return training;
  }

  static void expect_same(const Training& a, const Training& b) {
    expect_same_bits(a.weights, b.weights);
    if (GetParam().qat) expect_same_bits(a.quantized->state(), b.quantized->state());
    ASSERT_FALSE(b.epochs.empty());
    EXPECT_EQ(a.epochs.back().train_loss, b.epochs.back().train_loss);
    EXPECT_EQ(a.epochs.back().train_top1, b.epochs.back().train_top1);
  }

  const Folder folder_{"train_cuda"};
  OptimizerRecipe recipe_;
};

TEST_P(TrainCuda, ReplayedStepsGiveTheBitsOfEagerOnes) {
  const auto eager = training("eager.safetensors", false), replayed = training("replayed.safetensors", true);
  eager->run();
  replayed->run();
  expect_same(*eager, *replayed);
  EXPECT_LT(eager->epochs.back().train_loss, 0.9 * eager->epochs.front().train_loss);
  EXPECT_GT(eager->epochs.back().gpu_memory_bytes, 0u);
}

TEST_P(TrainCuda, ContinuesToTheSameBits) {
  const auto whole = training("whole.safetensors", true);
  whole->run();
  for (const int step : {2, 14}) {
    const auto first = training("state.safetensors", true), second = training("state.safetensors", true);
    run_and_stop(*first, step);
    second->phase.resume = true;
    second->run();
    SCOPED_TRACE("stopped after step " + std::to_string(step));
    expect_same(*whole, *second);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Train, TrainCuda,
    testing::Values(Case{.name = "fp32"}, Case{.name = "fp16", .precision = "fp16"},
                    Case{.name = "bf16_ema", .precision = "bf16", .ema = 0.9},
                    Case{.name = "fp16_adamw_clip", .precision = "fp16", .optimizer = "adamw", .clip_gradient = 0.5},
                    Case{.name = "fp16_uploaded", .precision = "fp16", .resident_images = "off"},
                    Case{.name = "contiguous", .channels_last = false}, Case{.name = "qat", .qat = true},
                    Case{.name = "qat_fp16", .qat = true, .precision = "fp16"},
                    Case{.name = "qat_bf16_ema", .qat = true, .precision = "bf16", .ema = 0.9}),
    [](const auto& info) { return info.param.name; });

TEST(TrainDevices, AStateOfOneDeviceIsContinuedOnTheOther) {
  OCTET_NEEDS_GPU();
  for (const bool gpu_first : {true, false}) {
    const Folder folder("devices");
    const std::string state = folder.path() + "/state.safetensors";
    OptimizerRecipe recipe = short_recipe();
    recipe.ema = 0.9;
    recipe.precision = "fp16";
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
  // The same pictures in the same order: sums in another order are all that differs in three epochs.
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
  EXPECT_NE(message.find("--resume"), std::string::npos) << message;
  EXPECT_EQ(read_file(state), good);
}

}  // namespace
}  // namespace octet
