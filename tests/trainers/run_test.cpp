// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/run.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/net/checkpoint.h"
#include "tests/trainers/calibrated_run.h"
#include "trainers/run/advice.h"
#include "trainers/run/records.h"

namespace octet {
namespace {

using testing_trainers::CalibratedRun;
using testing_trainers::Folder;
using testing_trainers::message_of;
using testing_trainers::tiny_recipe;

TEST(RunDirectory, NamesOfTheFiles) {  // documented in trainers/README.md
  const RunDirectory directory{"runs/a"};
  EXPECT_EQ(directory.recipe(), "runs/a/recipe.yaml");
  EXPECT_EQ(directory.command(), "runs/a/command.txt");
  EXPECT_EQ(directory.environment(), "runs/a/environment.json");
  EXPECT_EQ(directory.metrics(), "runs/a/metrics.jsonl");
  EXPECT_EQ(directory.float_state(), "runs/a/checkpoints/float.state.safetensors");
  EXPECT_EQ(directory.qat_state(), "runs/a/checkpoints/qat.state.safetensors");
  EXPECT_EQ(directory.float_control_state(), "runs/a/checkpoints/float_control.state.safetensors");
  EXPECT_EQ(directory.float_weights(), "runs/a/float.safetensors");
  EXPECT_EQ(directory.float_control(), "runs/a/float_control.safetensors");
  EXPECT_EQ(directory.quantized(), "runs/a/qat.safetensors");
  EXPECT_EQ(directory.int8(), "runs/a/int8.safetensors");
  EXPECT_EQ(directory.report_json(), "runs/a/report.json");
  EXPECT_EQ(directory.report_html(), "runs/a/report.html");
}

TEST(RunDirectory, StartsRefusesAndResumes) {
  const Folder folder("run");
  const RunDirectory directory{folder.path() + "/new"};
  const Recipe recipe = tiny_recipe();
  {
    const FolderLock held =
        start_run_directory(directory, recipe, {.command = "octet train a.yaml", .machine = "two cores"});
    EXPECT_NE(message_of(ExitCode::usage, [&] { start_run_directory(directory, recipe, {.resume = true}); })
                  .find("another octet is at work"),
              std::string::npos);
  }
  EXPECT_EQ(write_recipe(read_recipe(directory.recipe())), write_recipe(recipe));
  EXPECT_NE(read_file(directory.environment()).find("two cores"), std::string::npos);

  EXPECT_NE(message_of(ExitCode::usage, [&] { start_run_directory(directory, recipe, {}); }).find("--resume"),
            std::string::npos);
  start_run_directory(directory, recipe, {.command = "octet train a.yaml --resume", .resume = true});
  EXPECT_EQ(read_file(directory.command()), "octet train a.yaml\noctet train a.yaml --resume\n");

  Recipe other = recipe;
  other.train.learning_rate *= 2;
  EXPECT_NE(message_of(ExitCode::usage, [&] { start_run_directory(directory, other, {.resume = true}); })
                .find("another recipe"),
            std::string::npos);
  const RunDirectory nothing{folder.path() + "/nothing"};
  message_of(ExitCode::usage, [&] { start_run_directory(nothing, recipe, {.resume = true}); });
}

TEST(RunDirectory, AnotherDeviceIsAWarning) {
  const Folder folder("device");
  const RunDirectory directory{folder.path() + "/run"};
  start_run_directory(directory, tiny_recipe(), {});
  const auto resumed = [&] {
    testing::internal::CaptureStderr();
    start_run_directory(directory, tiny_recipe(), {.resume = true});
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(resumed(), "");
  std::string environment = read_file(directory.environment());
  environment.replace(environment.find("\"cpu\""), 5, "\"NVIDIA H200\"");
  write_file_atomically(directory.environment(), environment);
  const std::string told = resumed();
  EXPECT_NE(told.find("warning: this run began on NVIDIA H200 and goes on on cpu"), std::string::npos) << told;
}

TEST(RunDirectory, NewOnesAreNumbered) {
  const Folder folder("numbered");
  EXPECT_EQ(new_run_directory(folder.path(), "cnn").root, folder.path() + "/cnn-1");
  std::filesystem::create_directories(folder.path() + "/cnn-1");
  EXPECT_EQ(new_run_directory(folder.path(), "cnn").root, folder.path() + "/cnn-2");
}

TEST(Metrics, ARepeatedEpochReplacesItsLine) {
  const Folder folder("metrics");
  const std::string path = folder.path() + "/metrics.jsonl";
  EXPECT_TRUE(read_metrics(path).empty());
  add_metrics(path, {.phase = "float", .epoch = 1, .train_loss = 0.1});
  add_metrics(path, {.phase = "float", .epoch = 2, .train_loss = 1.0 / 3});
  add_metrics(path, {.phase = "qat", .epoch = 1, .train_loss = 0.3});
  add_metrics(path,
              {.phase = "qat", .epoch = 1, .train_loss = 0.4, .ranks = {{1000, 0.1, 0.25, 5}, {900, 0.2, 0.125, 6}}});
  const std::vector<EpochMetrics> metrics = read_metrics(path);
  ASSERT_EQ(metrics.size(), 3u);
  EXPECT_EQ(metrics[1].train_loss, 1.0 / 3);
  EXPECT_EQ(metrics[2].phase, "qat");
  EXPECT_EQ(metrics[2].train_loss, 0.4);
  EXPECT_TRUE(metrics[1].ranks.empty());
  ASSERT_EQ(metrics[2].ranks.size(), 2u);
  EXPECT_EQ(metrics[2].ranks[1].exchange_share, 0.125);

  std::ofstream(path, std::ios::app) << "{\"phase\": 3}\n";
  EXPECT_NE(message_of(ExitCode::data, [&] { read_metrics(path); }).find(path + ":4"), std::string::npos);
}

TEST(Metrics, EveryNumberIsReadAgain) {
  using Limits = std::numeric_limits<double>;
  const Folder folder("metrics_numbers");
  const std::string path = folder.path() + "/metrics.jsonl";
  const std::vector<double> numbers = {Limits::quiet_NaN(),
                                       Limits::infinity(),
                                       -Limits::infinity(),
                                       Limits::max(),
                                       Limits::lowest(),
                                       Limits::denorm_min(),
                                       -0.0,
                                       1.0 / 3};
  int epoch = 0;
  for (const double x : numbers)
    add_metrics(path, {.phase = "float",
                       .epoch = ++epoch,
                       .train_loss = x,
                       .train_cross_entropy = x,
                       .train_top1 = x,
                       .validation_loss = x,
                       .validation_top1 = x,
                       .learning_rate = x,
                       .images_per_second = x,
                       .data_wait_share = x,
                       .seconds = x,
                       .validation_mean_iou = x,
                       .ranks = {{x, x, x, 5}}});
  const std::vector<EpochMetrics> read = read_metrics(path);
  ASSERT_EQ(read.size(), numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    const EpochMetrics& m = read[i];
    for (const double number : {m.train_loss, m.train_cross_entropy, m.train_top1, m.validation_loss.value(),
                                m.validation_top1.value(), m.learning_rate, m.images_per_second, m.data_wait_share,
                                m.seconds, m.validation_mean_iou.value(), m.ranks.at(0).exchange_share}) {
      if (std::isnan(numbers[i])) {
        EXPECT_TRUE(std::isnan(number));
      } else {
        EXPECT_EQ(std::bit_cast<uint64_t>(number), std::bit_cast<uint64_t>(numbers[i])) << numbers[i];
      }
    }
  }
  // As octet wrote it before it spelled them.
  std::string line = read_file(path);
  line = line.substr(0, line.find('\n') + 1);
  for (size_t at = 0; (at = line.find("\"NaN\"")) != std::string::npos;) line.replace(at, 5, "null");
  write_file_atomically(path, line);
  EXPECT_TRUE(std::isnan(read_metrics(path).at(0).validation_loss.value()));
}

TEST(Metrics, ALossThatRunsAwayIsSaidOnceWithItsCure) {
  constexpr int kEpochs = 6;
  const auto said = [&](const std::string& phase, const std::vector<double>& losses) {
    std::vector<EpochMetrics> epochs{{.phase = "another", .epoch = 1, .train_cross_entropy = 0.01}};
    for (const double loss : losses)
      epochs.push_back({.phase = phase, .epoch = static_cast<int>(epochs.size()), .train_cross_entropy = loss});
    return runaway_loss(epochs, kEpochs, 0.5);
  };
  EXPECT_EQ(said("qat", {0.6, 0.3, 0.4, 2.4}),
            "warning: qat: the loss was 0.300 in epoch 2 and is 2.400 in epoch 4; lower qat.learning_rate, or let "
            "BatchNorm's statistics follow for longer: they stay from epoch 4 on (qat.freeze_batch_norm 0.5)");
  EXPECT_EQ(said("qat", {0.3, 0.4, 2.4}),
            "warning: qat: the loss was 0.300 in epoch 1 and is 2.400 in epoch 3; lower qat.learning_rate");
  EXPECT_EQ(said("float", {0.3, 0.4, 0.2, 2.4}),
            "warning: float: the loss was 0.200 in epoch 3 and is 2.400 in epoch 4; lower train.learning_rate");
  EXPECT_EQ(said("qat", {0.3, 2.4, 2.3}), "");  // said before
  EXPECT_EQ(said("qat", {2.3}), "");
  const std::vector<EpochMetrics> one{{.phase = "float", .epoch = 9, .train_cross_entropy = 0.1},
                                      {.phase = "qat", .epoch = 1, .train_cross_entropy = 11.8}};
  EXPECT_EQ(runaway_loss(one, kEpochs, 0.5, 0.3),
            "warning: qat: the loss was 0.300 in the first step and is 11.800 in epoch 1; lower qat.learning_rate");
  EXPECT_EQ(runaway_loss(one, kEpochs, 0.5, 9), "");
  EXPECT_EQ(said("qat", {0.01, 0.5}), "");  // small losses scatter
  EXPECT_EQ(said("qat", {1.0, 2.4}), "");
}

TEST(Metrics, ATrainingSaysThatItsLossRanAway) {
  for (const std::string phase : {"qat", "float"}) {
    const Folder folder("runaway");
    CalibratedRun c(tiny_recipe(), folder.path());
    add_metrics(c.run.directory.metrics(), {.phase = phase, .epoch = 0, .train_cross_entropy = 0.01});
    testing::internal::CaptureStderr();
    train_qat(c.run, c.model, false);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("warning: qat: the loss was 0.010 in epoch 0") != std::string::npos, phase == "qat") << said;
  }
}

TEST(Run, ModelWithAnotherNumberOfClassesIsRefused) {
  Recipe recipe = tiny_recipe();
  recipe.data.synthetic_classes = 5;
  const std::string message = message_of(ExitCode::usage, [&] { open_run(recipe, {}); });
  EXPECT_NE(message.find("4"), std::string::npos) << message;
  EXPECT_NE(message.find("5"), std::string::npos) << message;
}

std::string codes(const Int8Graph& graph, const std::string& path) {
  write_checkpoint(path, graph);
  return read_file(path);
}

TEST(Run, QuantizedModelIsRebuiltExactly) {
  const Folder folder("quantized");
  const auto run = open_run(tiny_recipe(), {folder.path()});
  const Weights weights = starting_weights(run);
  QuantizedModel model = make_quantized(run, weights);
  calibrate(model, run);
  save_quantized(model, run.directory.quantized());
  const QuantizedModel loaded = load_quantized(run);
  const auto names = run.data.train_set->class_names();
  EXPECT_EQ(codes(model.convert(run.preprocessing, names), folder.path() + "/a"),
            codes(loaded.convert(run.preprocessing, names), folder.path() + "/b"));
}

TEST(Run, EntropyBelowEightBitsIsSaid) {
  for (const int bits : {8, 4}) {
    Recipe recipe = tiny_recipe();
    recipe.calibrate.method = CalibrationMethod::entropy;
    recipe.quant.layers = {{"conv1", 0, bits}};
    const auto run = open_run(recipe, {});
    QuantizedModel model = make_quantized(run, starting_weights(run));
    testing::internal::CaptureStderr();
    calibrate(model, run);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("calibrate.method entropy was made for 8 bits; for activations of 4") != std::string::npos,
              bits == 4)
        << said;
  }
}

TEST(Run, FilesThatAreNoQuantizedModelAreRefused) {
  const Folder folder("refused");
  const auto run = open_run(tiny_recipe(), {folder.path()});
  message_of(ExitCode::data, [&] { load_quantized(run); });
  save_weights(starting_weights(run), run.directory.quantized());
  EXPECT_NE(message_of(ExitCode::data, [&] { load_quantized(run); }).find("not a quantized model"), std::string::npos);
}

}  // namespace
}  // namespace octet
