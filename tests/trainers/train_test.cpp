// SPDX-License-Identifier: Apache-2.0
#include "trainers/loop/train.h"

#include <ATen/Functions.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/base/error.h"
#include "src/base/files.h"
#include "tests/trainers/training.h"
#include "trainers/loop/batches.h"
#include "trainers/loop/optimizer.h"
#include "trainers/loop/step.h"
#include "trainers/loop/training_state.h"

namespace octet {
namespace {

using testing_trainers::expect_same_bits;
using testing_trainers::expect_same_end;
using testing_trainers::Folder;
using testing_trainers::message_of;
using testing_trainers::recipe_of;
using testing_trainers::run_and_stop;
using testing_trainers::short_recipe;
using testing_trainers::Training;
using testing_trainers::Variant;

class Resume : public testing::TestWithParam<Variant> {};

TEST_P(Resume, ContinuesToTheSameBits) {
  const Variant& param = GetParam();
  const OptimizerRecipe recipe = recipe_of(param);
  const Folder folder("resume");
  const std::string state = folder.path() + "/state.safetensors";
  Training whole(recipe, folder.path() + "/whole.safetensors", param, at::kCPU);
  at::set_num_threads(param.threads);
  whole.run();

  // The first; the end of an epoch; in the middle; the last but one; the last. Two threads on busy cores are slow.
  const std::vector<int> steps = param.threads > 1 ? std::vector<int>{6} : std::vector<int>{1, 4, 6, 11, 12};
  for (const int step : steps) {
    Training first(recipe, state, param, at::kCPU);
    Training second(recipe, state, param, at::kCPU);
    at::set_num_threads(param.threads);
    run_and_stop(first, step);
    second.phase.resume = true;
    second.run();
    SCOPED_TRACE("stopped after step " + std::to_string(step));
    expect_same_end(whole, second);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Train, Resume,
    testing::Values(
        Variant{.name = "sgd"}, Variant{.name = "contiguous", .channels_last = false},
        Variant{.name = "ema_bf16", .precision = Precision::bf16, .ema = 0.9},
        Variant{.name = "adamw_clip", .optimizer = OptimizerKind::adamw, .clip_gradient = 0.5},
        Variant{.name = "fp16_scaler", .precision = Precision::fp16}, Variant{.name = "qat", .qat = true},
        Variant{.name = "qat_fp16", .qat = true, .precision = Precision::fp16},
        Variant{.name = "qat_learned_ema", .qat = true, .learn = true, .ema = 0.9},
        Variant{.name = "qat_lsq_plus_ema", .qat = true, .learn = true, .edges = EdgeScales::lsq_plus, .ema = 0.9},
        Variant{.name = "qat_learned_adamw", .qat = true, .learn = true, .optimizer = OptimizerKind::adamw},
        Variant{.name = "qat_learned_fp16", .qat = true, .learn = true, .precision = Precision::fp16},
        Variant{.name = "qat_sparse_fp16", .qat = true, .sparse = true, .precision = Precision::fp16},
        Variant{.name = "two_threads", .threads = 2},
        Variant{.name = "qat_ema_bf16", .qat = true, .precision = Precision::bf16, .ema = 0.9}),
    [](const auto& info) { return info.param.name; });

TEST(Train, LearnsTheQuadrantsInFloatAndQat) {
  OptimizerRecipe recipe = short_recipe();
  recipe.epochs = 10;
  for (const bool qat : {false, true}) {
    const Folder folder("learns");
    Training training(recipe, folder.path() + "/state.safetensors", qat);
    training.run();
    ASSERT_EQ(training.epochs.size(), 10u);
    EXPECT_LT(training.epochs.back().train_loss, 0.5 * training.epochs.front().train_loss);
    Preprocessing preprocessing{.resize = 0, .crop = 8, .mean = training.data.mean, .std = training.data.std};
    const auto program = qat ? qat_graph_program(*training.quantized, preprocessing)
                             : float_program(training.graph, training.weights, preprocessing);
    std::vector<float> logits(4);
    int right = 0;
    for (const size_t index : training.data.validation) {
      const Image image = training.data.validation_set->read(index);
      program->run(image.pixels.data(), 1, logits.data());
      right +=
          std::max_element(logits.begin(), logits.end()) - logits.begin() == training.data.validation_set->label(index);
    }
    EXPECT_GT(right, 0.95 * 64) << (qat ? "qat" : "float");
  }
}

/// Before the first update the network is the same: label smoothing changes what is minimized, not the cross-entropy.
TEST(Train, CrossEntropyIsReportedWithoutLabelSmoothing) {
  const Folder folder("smoothing");
  std::vector<EpochResult> results;
  for (const double smoothing : {0.0, 0.1}) {
    OptimizerRecipe recipe = short_recipe();
    recipe.epochs = 1;
    recipe.batch_size = 128;  // one step
    recipe.label_smoothing = smoothing;
    Training training(recipe, folder.path() + fmt::format("/{}.safetensors", smoothing), false);
    training.run();
    results.push_back(training.epochs.at(0));
  }
  EXPECT_EQ(results[0].train_cross_entropy, results[0].train_loss);
  EXPECT_EQ(results[1].train_cross_entropy, results[0].train_loss);
  EXPECT_NE(results[1].train_loss, results[1].train_cross_entropy);
}

TEST(Train, FinishedPhaseIsOnlyLoaded) {
  const Folder folder("finished");
  const std::string state = folder.path() + "/state.safetensors";
  Training first(short_recipe(), state, false);
  first.run();
  Training second(short_recipe(), state, false);
  second.phase.resume = true;
  second.run();
  EXPECT_TRUE(second.epochs.empty());
  expect_same_bits(first.weights, second.weights);
}

TEST(Train, StateOfAnotherRecipeIsRefused) {
  const Folder folder("refused");
  const std::string state = folder.path() + "/state.safetensors";
  Training first(short_recipe(), state, false);
  run_and_stop(first, 2);
  Training second(short_recipe(), state, false);
  second.phase.resume = true;
  second.phase.fingerprint = "another run";
  const std::string message = message_of(ExitCode::usage, [&] { second.run(); });
  EXPECT_NE(message.find(state), std::string::npos) << message;
  EXPECT_NE(message.find("another run"), std::string::npos) << message;
}

TEST(Train, NonFiniteLossNamesTheLayerAndKeepsTheLastGoodState) {
  for (const bool qat : {false, true}) {
    const Folder folder("nan");
    const std::string state = folder.path() + "/state.safetensors";
    Training training(short_recipe(), state, qat);
    run_and_stop(training, 2);
    const std::string good = read_file(state);
    training.phase.resume = true;
    training.phase.stop = [&] {  // after the third step of epoch 1 a weight goes bad
      training.weights.at("conv2.weight").detach()[0][0][0][0].fill_(std::numeric_limits<float>::quiet_NaN());
      return false;
    };
    const std::string message = message_of(ExitCode::promise, [&] { training.run(); });
    EXPECT_NE(message.find("first at node 'conv2', its weights"), std::string::npos) << message;
    EXPECT_NE(message.find("epoch 1, step 4"), std::string::npos) << message;
    EXPECT_NE(message.find(training.phase.name), std::string::npos) << message;
    EXPECT_EQ(read_file(state), good);
  }
}

TEST(Train, DivergenceBetweenLossAndSavingNeverReachesTheStateFile) {
  const Folder folder("diverged");
  const std::string state = folder.path() + "/state.safetensors";
  Training training(short_recipe(), state, false);
  int step = 0;
  training.phase.stop = [&] {
    if (++step == 4) training.weights.at("fc.bias").detach()[1].fill_(std::numeric_limits<float>::infinity());
    return false;
  };
  const std::string message = message_of(ExitCode::promise, [&] { training.run(); });
  EXPECT_NE(message.find("fc.bias"), std::string::npos) << message;
  EXPECT_FALSE(std::filesystem::exists(state));
}

TEST(Train, OutOfMemoryInValidationDoesNotBlameTheTrainingBatch) {
  const Folder folder("validation");
  Training training(short_recipe(), folder.path() + "/state.safetensors", false);
  training.phase.epoch_done = [](const EpochResult& result) {
    if (result.epoch == 1) throw c10::OutOfMemoryError({"a test", "", 0}, "no memory");
  };
  const std::string message = message_of(ExitCode::promise, [&] { training.run(); });
  EXPECT_NE(message.find("phase float, validation after epoch 2: the GPU is out of memory"), std::string::npos);
  EXPECT_NE(message.find("smaller evaluate.batch_size"), std::string::npos) << message;
  EXPECT_NE(message.find("kept in " + training.phase.checkpoint), std::string::npos) << message;

  Training again(short_recipe(), training.phase.checkpoint, false);
  again.phase.resume = true;
  again.phase.epoch_done = [](const EpochResult&) { throw promise_error("the float network: no room"); };
  const std::string told = message_of(ExitCode::promise, [&] { again.run(); });
  EXPECT_NE(told.find("phase float, validation after epoch 2: the float network: no room"), std::string::npos) << told;
  EXPECT_NE(told.find("kept in " + training.phase.checkpoint), std::string::npos) << told;

  Training third(short_recipe(), training.phase.checkpoint, false);
  third.phase.resume = true;
  third.run();
  EXPECT_EQ(third.epochs.size(), 2u);  // of three; the second is validated again
}

TEST(Train, EmaIsWhatValidationSeesAndWhatRemains) {
  OptimizerRecipe recipe = short_recipe();
  recipe.ema = 0.9;
  const Folder folder("ema");
  Training training(recipe, folder.path() + "/state.safetensors", false);
  std::map<std::string, at::Tensor> last_seen;
  training.phase.epoch_done = [&](const EpochResult&) {
    for (const auto& [name, tensor] : training.weights) last_seen[name] = tensor.detach().clone();
  };
  training.run();
  expect_same_bits(last_seen, training.weights);
}

TEST(Train, BatchLargerThanTheTrainingSetIsRefused) {
  OptimizerRecipe recipe = short_recipe();
  recipe.batch_size = 129;
  const Folder folder("batch");
  Training training(recipe, folder.path() + "/state.safetensors", false);
  const std::string message = message_of(ExitCode::usage, [&] { training.run(); });
  EXPECT_NE(message.find("129"), std::string::npos) << message;
  EXPECT_NE(message.find("128"), std::string::npos) << message;
}

TEST(Train, AStepWhoseScaledGradientsOverflowIsSkipped) {
  OptimizerRecipe recipe = short_recipe();
  recipe.precision = Precision::fp16;
  Training training(recipe, "", false);
  TrainStep step(training.phase);
  const at::Tensor images = at::randn({32, 1, 8, 8}), labels = at::arange(32).remainder(4);
  const auto moves = [&](float loss_scale) {
    TensorFile state;
    step.put_state(state);
    put_tensors(state, "scaler", {{"scale", at::full({}, loss_scale)}, {"growth", at::zeros({}, at::kInt)}});
    step.restore_state(state, "memory");
    const at::Tensor before = training.weights.at("fc.weight").detach().clone();
    step.set(0.05, 0);
    step.begin_epoch({});
    step.launch(images, labels, {});
    EXPECT_TRUE(std::isfinite(step.totals()[0].item<double>()));
    return !training.weights.at("fc.weight").equal(before);
  };
  EXPECT_FALSE(moves(1e38f));  // beyond float16
  EXPECT_TRUE(moves(1024.0f));
}

TEST(Train, StepSeedsDiffer) {
  EXPECT_EQ(step_seed(1, "float", 2, 3), step_seed(1, "float", 2, 3));
  const std::vector<uint64_t> seeds{step_seed(1, "float", 2, 3), step_seed(2, "float", 2, 3),
                                    step_seed(1, "qat", 2, 3),   step_seed(1, "float", 3, 2),
                                    step_seed(1, "float", 2, 4), step_seed(1, "float", 3, 3)};
  for (size_t i = 0; i < seeds.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(seeds[i], seeds[j]);
  }
}

TEST(Batches, DecodingByTheGpuIsRefusedOnACpu) {
  RunData data = testing_trainers::tiny_data();
  data.decode = Decoding::gpu;
  const std::string message = message_of(ExitCode::usage, [&] { make_batches(data, {.batch_size = 8}); });
  EXPECT_NE(message.find("data.decode: gpu, but this run trains on the CPU; use cpu"), std::string::npos) << message;
}

}  // namespace
}  // namespace octet
