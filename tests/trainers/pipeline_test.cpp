// SPDX-License-Identifier: Apache-2.0
// The whole job on a tiny synthetic set: every file is written, and a run stopped in QAT ends with the same bytes.
#include "trainers/run/pipeline.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <numeric>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/quant/node_constants.h"
#include "src/quant/plan.h"
#include "src/report/report.h"
#include "tests/trainers/tiny.h"
#include "trainers/run/measure.h"
#include "trainers/run/records.h"

namespace octet {
namespace {

using testing_trainers::Folder;
using testing_trainers::message_of;
using testing_trainers::tiny_recipe;

TEST(Pipeline, WritesEveryFileAndTheRowsOfTheTable) {
  const Folder folder("pipeline");
  const RunDirectory directory{folder.path() + "/run"};
  Recipe recipe = tiny_recipe();
  recipe.evaluate.latency_images = 3;
  const Report report = train(recipe, directory, {.command = "octet train", .machine = "test"}).value();
  for (const std::string& path :
       {directory.recipe(), directory.command(), directory.environment(), directory.metrics(), directory.float_state(),
        directory.qat_state(), directory.float_weights(), directory.quantized(), directory.int8(),
        directory.report_json(), directory.report_html(), directory.report_svg()}) {
    EXPECT_TRUE(std::filesystem::is_regular_file(path)) << path;
  }
  std::vector<std::string> names;
  for (const Row& row : report.rows) names.push_back(row.evaluation.name);
  EXPECT_EQ(names, (std::vector<std::string>{"float", "ptq", "simulation", "qat_graph", "cpu", "reference"}));
  EXPECT_EQ(report.rows[3].differing, -1);
  EXPECT_EQ(report.rows[4].differing, 0);
  EXPECT_EQ(report.rows[5].differing, 0);
  EXPECT_EQ(report.rows[5].evaluation.images, 120);
  for (const Row& row : report.rows) EXPECT_EQ(row.evaluation.latency_runs, 3);
  EXPECT_TRUE(report.comparison.identical());
  const DerivedConstants& constants = report.comparison.constants;
  EXPECT_TRUE(constants.derived);  // the other proof: multipliers, weights and edges a second time
  EXPECT_EQ(constants.weights,
            8 * (9 + 1) + 8 * (8 * 9 + 1) + 4 * (8 * 16 + 1));  // codes, and a scale an output channel
  EXPECT_GT(constants.multipliers, 0);
  EXPECT_EQ(report.epochs.size(), 4u);
  EXPECT_EQ(report.rows[4].bytes, static_cast<long>(std::filesystem::file_size(directory.int8())));
  EXPECT_LT(report.rows[4].bytes, 100'000);
}

/// A network that overflows in calibration was trained with too large a rate, be it for one epoch, or came from a file.
TEST(Pipeline, AnOverflowInCalibrationIsBlamedOnWhatMadeTheWeights) {
  auto run = open_run(tiny_recipe(), {});
  Weights weights = starting_weights(run);
  for (const char* name : {"conv1.weight", "conv2.weight"}) weights.at(name).detach().fill_(1e30f);
  const auto message = [&] {
    QuantizedModel model = make_quantized(run, weights);
    return message_of(ExitCode::promise, [&] { calibrate(model, run); });
  };
  for (const int epochs : {1, 2}) {
    run.recipe.train.epochs = epochs;
    EXPECT_NE(message().find("the float network overflows; lower train.learning_rate, now 0.05"), std::string::npos)
        << message();
  }
  run.recipe.train.epochs = 0;
  run.recipe.model.weights = "given.safetensors";
  EXPECT_NE(message().find("the weights of given.safetensors are not fit"), std::string::npos) << message();
}

TEST(Pipeline, ThePageSaysWhatTheRunIsDoing) {
  const Folder folder("pipeline_page");
  const Recipe recipe = tiny_recipe();
  const RunDirectory directory{folder.path() + "/run"};
  start_run_directory(directory, recipe, {});
  auto run = open_run(recipe, directory);
  Weights weights = starting_weights(run);
  train_float(run, weights, false);
  QuantizedModel model = make_quantized(run, weights);
  calibrate(model, run);
  std::vector<std::string> pages;
  train_qat(run, model, false, [&] {
    pages.push_back(read_file(directory.report_html()));
    return false;
  });
  ASSERT_EQ(pages.size(), 8u);  // steps
  const auto expect_on = [](const std::string& page, const std::string& part) {
    EXPECT_NE(page.find(part), std::string::npos) << part << " is not on the page: " << page.substr(0, 300);
  };
  expect_on(pages.front(), "Running: float: epoch 2 of 2 is done (20");
  expect_on(pages.back(), "Running: qat: epoch 1 of 2 is done, about ");
  expect_on(pages.back(), "http-equiv=\"refresh\"");
  train(recipe, directory, {.resume = true});
  const std::string finished = read_file(directory.report_html());
  EXPECT_EQ(finished.find("Running: "), std::string::npos);
  expect_on(finished, "id=\"accuracy\"");
}

TEST(Pipeline, ThePageSaysWhyARunStopped) {
  const Folder folder("pipeline_stopped");
  Recipe recipe = tiny_recipe();
  recipe.qat.learning_rate = 1e30;
  const RunDirectory directory{folder.path() + "/run"};
  const std::string message = message_of(ExitCode::promise, [&] { train(recipe, directory, {}); });
  const std::string page = read_file(directory.report_html());
  EXPECT_NE(page.find("<p class=\"state\">Stopped: "), std::string::npos) << page.substr(0, 300);
  EXPECT_NE(page.find(message.substr(0, message.find_first_of("\n'\"<>&"))), std::string::npos) << message;
  EXPECT_EQ(page.find("http-equiv=\"refresh\""), std::string::npos);
}

TEST(Pipeline, WhatWasTrainedIsCountedAgainstWhatRuns) {
  const Folder folder("pipeline_counted");
  Recipe recipe = tiny_recipe();
  recipe.qat.precision = Precision::bf16;
  const Comparison c = train(recipe, {folder.path() + "/run"}, {})->comparison;
  EXPECT_EQ(c.programs, (std::vector<std::string>{"qat_graph", "simulation", "trained_bf16", "cpu", "reference"}));
  EXPECT_EQ(c.exact, (std::vector<bool>{false, false, true, true}));
  EXPECT_TRUE(c.identical());
  EXPECT_EQ(c.program_images[1], 120);
  EXPECT_GT(c.differing_codes(1), 0);
  EXPECT_GT(c.differing_codes(1), c.differing_codes(0));
  EXPECT_EQ(c.layers[0].differing, (std::vector<long>{0, 0, 0, 0}));  // the same quantizer on the same images
  recipe.qat.epochs = 0;  // nothing is trained on: what was calibrated is the simulation
  EXPECT_EQ(train(recipe, {folder.path() + "/ptq"}, {})->comparison.programs,
            (std::vector<std::string>{"qat_graph", "simulation", "cpu", "reference"}));
}

/// Test images that count how often one is read.
class Counted : public testing_trainers::Quadrants {
 public:
  using Quadrants::Quadrants;
  Image read(size_t index) const override {
    ++reads;
    return Quadrants::read(index);
  }
  mutable std::atomic<int> reads = 0;
};

TEST(Pipeline, NoTestImageIsReadBeforeTheEndAndValidationIsOfItsOwn) {
  const Folder folder("pipeline_unread");
  const Recipe recipe = tiny_recipe();
  const RunDirectory directory{folder.path()};
  start_run_directory(directory, recipe, {});
  auto run = open_run(recipe, directory);
  const auto test = std::make_shared<Counted>(120, 3);
  run.data.test_set = test;
  run.data.test.resize(7);
  std::iota(run.data.test.begin(), run.data.test.end(), size_t{0});
  Weights weights = starting_weights(run);
  train_float(run, weights, false);
  QuantizedModel model = make_quantized(run, weights);
  calibrate(model, run);
  train_qat(run, model, false);
  for (const EpochMetrics& epoch : read_metrics(directory.metrics())) {
    const double right = 32 * epoch.validation_top1.value();
    EXPECT_EQ(right, std::round(right)) << epoch.phase;
    EXPECT_GT(epoch.validation_loss.value(), 0);
  }
  EXPECT_EQ(test->reads, 0);
  measure(run, "float", *float_program(run.graph, weights, run.preprocessing), run.data.test_images());
  EXPECT_EQ(test->reads, 7);
}

/// Fixed scales; and all that is computed anew at the end.
class PipelineResume : public testing::TestWithParam<bool> {};

TEST_P(PipelineResume, InQatItEndsWithTheSameBytes) {
  const Folder folder("pipeline_resume");
  Recipe recipe = tiny_recipe();
  if (GetParam()) {
    recipe.quant.scales = EdgeScales::observed;
    recipe.qat.ema = 0.9;
    recipe.data.color_jitter = {0.4, 0.4, 0.4, 0.1};
    recipe.data.rand_augment = 2;
    recipe.data.random_erasing = 0.25;
    recipe.data.mixup_alpha = 0.2;
  }
  const RunDirectory whole{folder.path() + "/whole"}, stopped{folder.path() + "/stopped"};
  train(recipe, whole, {});

  start_run_directory(stopped, recipe, {});  // the float phase and two steps of QAT, as train() does them
  auto run = open_run(recipe, stopped);
  Weights weights = starting_weights(run);
  train_float(run, weights, false);
  QuantizedModel model = make_quantized(run, weights);
  calibrate(model, run);
  int steps = 0;
  EXPECT_THROW(train_qat(run, model, false, [&] { return ++steps == 2; }), Error);

  const Report report = train(recipe, stopped, {.resume = true}).value();
  EXPECT_EQ(read_file(stopped.quantized()), read_file(whole.quantized()));
  EXPECT_EQ(read_file(stopped.int8()), read_file(whole.int8()));
  EXPECT_EQ(report.epochs.size(), 4u);
  EXPECT_TRUE(report.comparison.identical());
}

INSTANTIATE_TEST_SUITE_P(Pipeline, PipelineResume, testing::Bool(),
                         [](const auto& info) { return info.param ? "observed_ema_mixed" : "fixed"; });

TEST(Pipeline, TheFloatControlTrainsOnFromTheFloatWeightsWithTheImagesOfQat) {
  const Folder folder("pipeline_control");
  Recipe recipe = tiny_recipe();
  const RunDirectory without{folder.path() + "/without"}, directory{folder.path() + "/with"};
  train(recipe, without, {});
  recipe.qat.float_control = true;
  const Report report = train(recipe, directory, {}).value();
  EXPECT_EQ(read_file(directory.quantized()), read_file(without.quantized()));  // QAT knows nothing of it
  EXPECT_EQ(read_file(directory.float_weights()), read_file(without.float_weights()));
  EXPECT_NE(read_file(directory.float_control()), read_file(directory.float_weights()));
  EXPECT_TRUE(std::filesystem::exists(directory.float_control_state()));
  ASSERT_EQ(report.rows.size(), 7u);
  EXPECT_EQ(report.rows[1].evaluation.name, "float_control");
  EXPECT_EQ(report.rows[1].bytes, static_cast<long>(std::filesystem::file_size(directory.float_control())));
  ASSERT_EQ(report.epochs.size(), 6u);
  EXPECT_EQ(report.epochs[5].phase, "float_control");
  EXPECT_EQ(report.epochs[5].learning_rate, report.epochs[3].learning_rate);
  EXPECT_EQ(headline(report).baseline, &report.rows[1]);

  // The same by hand: the fused float network, QAT's optimizer and QAT's images.
  const auto run = open_run(recipe, directory);
  Weights weights = load_float(run);
  const Graph fused = fuse(run.graph);
  Phase phase{.name = "by hand", .recipe = &run.recipe.qat, .graph = &fused, .weights = &weights};
  phase.freeze_batch_norm = recipe.qat.freeze_batch_norm.value_or(kUsualFreeze);
  phase.seed = recipe.seed;
  phase.checkpoint = folder.path() + "/state.safetensors";
  const auto trained = [&](const std::string& images_of) {
    weights = load_float(run);
    phase.images_of = images_of;
    train_phase(phase, run.data);
    return float_params(weights);
  };
  const FloatParams control = float_params(load_float_control(run));
  EXPECT_EQ(trained("qat"), control);
  EXPECT_NE(trained(""), control);  // its own order
}

TEST(Pipeline, StoppedInTheFloatControlItEndsWithTheSameBytes) {
  const Folder folder("pipeline_control_resume");
  Recipe recipe = tiny_recipe();
  recipe.qat.float_control = true;
  const RunDirectory whole{folder.path() + "/whole"}, stopped{folder.path() + "/stopped"};
  train(recipe, whole, {});
  start_run_directory(stopped, recipe, {});
  auto run = open_run(recipe, stopped);
  Weights weights = starting_weights(run);
  train_float(run, weights, false);
  QuantizedModel model = make_quantized(run, weights);
  calibrate(model, run);
  train_qat(run, model, false);
  int steps = 0;
  EXPECT_THROW(train_float_control(run, false, [&] { return ++steps == 3; }), Error);
  EXPECT_FALSE(std::filesystem::exists(stopped.float_control()));

  const Report report = train(recipe, stopped, {.resume = true}).value();
  EXPECT_EQ(read_file(stopped.float_control()), read_file(whole.float_control()));
  EXPECT_EQ(read_file(stopped.int8()).size(), read_file(whole.int8()).size());
  EXPECT_EQ(report.epochs.size(), 6u);
}

TEST(Pipeline, QatDoesNotGoOnFromOtherFloatWeights) {
  const Folder folder("pipeline_weights");
  const RunDirectory directory{folder.path() + "/run"};
  const Recipe recipe = tiny_recipe();
  train(recipe, directory, {});
  std::filesystem::remove(directory.float_state());                        // as the message about a damaged one says
  EXPECT_EQ(train(recipe, directory, {.resume = true})->rows.size(), 6u);  // trained again to the same weights

  auto run = open_run(recipe, directory);
  Weights weights = starting_weights(run);  // others
  QuantizedModel model = make_quantized(run, weights);
  const std::string message = message_of(ExitCode::usage, [&] { train_qat(run, model, true); });
  EXPECT_NE(message.find(directory.qat_state()), std::string::npos) << message;
  EXPECT_NE(message.find("starting weights differ"), std::string::npos) << message;
}

TEST(Pipeline, ARunGoesOnWithOtherEnginesButNotWithAnotherTraining) {
  const Folder folder("pipeline_elsewhere");
  const RunDirectory directory{folder.path() + "/run"};
  Recipe recipe = tiny_recipe();
  train(recipe, directory, {});
  const std::string trained = read_file(directory.quantized());
  recipe.evaluate.engines = {"reference"};
  const Report report = train(recipe, directory, {.resume = true}).value();
  EXPECT_EQ(report.rows.back().evaluation.name, "reference");
  EXPECT_EQ(read_file(directory.quantized()), trained);
  EXPECT_EQ(read_recipe(directory.recipe()), recipe);
  recipe.qat.learning_rate *= 2;
  EXPECT_THROW(train(recipe, directory, {.resume = true}), Error);
}

TEST(Pipeline, WithoutQatThePtqNetworkIsExported) {
  const Folder folder("pipeline_ptq");
  Recipe recipe = tiny_recipe();
  recipe.qat.epochs = 0;
  const Report report = train(recipe, {folder.path() + "/run"}, {}).value();
  EXPECT_EQ(report.rows[1].differing, 0);  // ptq is the QAT graph
  EXPECT_EQ(report.epochs.size(), 2u);
}

TEST(Pipeline, NothingToTrainAndNothingToLoadIsRefusedBeforeAnythingIsWritten) {
  const Folder folder("pipeline_nothing");
  Recipe recipe = tiny_recipe();
  recipe.train.epochs = 0;
  EXPECT_THROW(train(recipe, {folder.path() + "/run"}, {}), Error);
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/run"));
}

}  // namespace
}  // namespace octet
