// SPDX-License-Identifier: Apache-2.0
// calibrate.equalize and calibrate.bias_correction through whole runs: what is repaired ships, and float stays float.
#include <gtest/gtest.h>

#include "src/base/files.h"
#include "src/base/progress.h"
#include "src/quant/plan.h"
#include "tests/trainers/tiny.h"
#include "trainers/run/measure.h"
#include "trainers/run/pipeline.h"
#include "trainers/run/ptq_search.h"

namespace octet {
namespace {

using testing_trainers::Folder;
using testing_trainers::message_of;

/// Four bits, one scale a tensor.
Recipe repaired() {
  Recipe recipe = testing_trainers::tiny_recipe();
  recipe.model.graph[2].op = "relu6";
  recipe.quant.weight_bits = 4;
  recipe.quant.weight_granularity = Granularity::per_tensor;
  recipe.calibrate.equalize = recipe.calibrate.bias_correction = true;
  recipe.calibrate.repair_images = 8;
  recipe.qat.epochs = 0;
  return recipe;
}

TEST(Repair, ARunShipsTheRepairedNetworkAndKeepsTheFloatOne) {
  const Folder folder("repair");
  Recipe recipe = repaired();
  const RunDirectory directory{folder.path() + "/run"}, plain{folder.path() + "/plain"};
  const Report report = train(recipe, directory, {}).value();
  EXPECT_TRUE(report.comparison.identical());
  const octet::Run run = open_run(recipe, directory);
  const QuantizedModel model = load_quantized(run);
  EXPECT_EQ(model.prepared().graph.nodes[1].activation, Activation::relu);
  EXPECT_EQ(fuse(run.graph).nodes[1].activation, Activation::relu6);

  recipe.calibrate.equalize = recipe.calibrate.bias_correction = false;
  train(recipe, plain, {});
  EXPECT_EQ(read_file(directory.float_weights()), read_file(plain.float_weights()));
  const QuantizedModel unrepaired = load_quantized(open_run(recipe, plain));
  for (const char* name : {"conv1.weight", "conv2.weight", "fc.weight", "bn1.bias"})
    EXPECT_FALSE(model.weights().at(name).equal(unrepaired.weights().at(name))) << name;
}

TEST(Repair, TheFloatNetworkTeachesTheOneThatShips) {
  const Folder folder("taught");
  Recipe recipe = repaired();
  recipe.quant.weight_granularity = Granularity::per_channel;
  recipe.calibrate.equalize = recipe.calibrate.bias_correction = false;
  recipe.calibrate.distill_learning_rate = 0.02;
  const RunDirectory directory{folder.path() + "/run"}, plain{folder.path() + "/plain"};
  train(recipe, plain, {});
  recipe.calibrate.distill_steps = 30;
  const Report report = train(recipe, directory, {}).value();
  EXPECT_TRUE(report.comparison.identical());
  EXPECT_EQ(read_file(directory.float_weights()), read_file(plain.float_weights()));
  const Weights taught = load_quantized(open_run(recipe, directory)).weights(),
                untaught = load_quantized(open_run(recipe, plain)).weights();
  for (const char* name : {"conv1.weight", "conv2.weight", "bn1.bias", "bn2.bias"})
    EXPECT_FALSE(taught.at(name).equal(untaught.at(name))) << name;
  for (const char* name : {"fc.weight", "fc.bias", "bn1.weight", "bn2.running_mean"})
    EXPECT_TRUE(taught.at(name).equal(untaught.at(name))) << name;
}

TEST(Repair, QatBeginsWithCorrectedBiasesAndTheFloatNetworkTeaches) {
  const Folder folder("corrected");
  Recipe recipe = repaired();
  recipe.calibrate.equalize = false;
  recipe.qat = testing_trainers::tiny_recipe().qat;
  recipe.qat.epochs = 1;
  recipe.qat.learning_rate = 1e-12;  // moves nothing
  recipe.qat.distill_weight = 0.5;
  for (const bool live : {false, true}) {  // live statistics take the shift themselves, and a corrected bias would stay
    recipe.qat.freeze_batch_norm = live ? 0.5 : 0;
    const RunDirectory directory{folder.path() + (live ? "/live" : "/frozen")};
    EXPECT_TRUE(train(recipe, directory, {}).value().comparison.identical());
    const octet::Run run = open_run(recipe, directory);
    const Weights floats = load_float(run), begun = load_quantized(run).weights();
    const Teacher teacher = float_teacher(run, begun);
    for (const char* name : {"bn1.bias", "bn2.bias"}) {  // fc has too few values
      EXPECT_EQ(begun.at(name).allclose(floats.at(name), 1e-5, 1e-6), live) << name;
      EXPECT_TRUE(teacher.weights.at(name).equal(floats.at(name))) << name;
    }
  }
}

TEST(Repair, EveryChoiceStartsFromTheSameWeights) {
  set_verbosity(Verbosity::quiet);
  const octet::Run run = open_run(repaired(), {});
  const Weights weights = starting_weights(run);
  const auto cpu = [](const octet::Run& tried, const Int8Graph& graph) { return compile_engine(tried, "cpu", graph); };
  const PtqChoice all = choose_ptq(run, weights, /*all=*/true, cpu);
  octet::Run last = run;
  last.recipe.quant.activation = all.results.back().activation;
  last.recipe.calibrate.method = all.results.back().method;
  EXPECT_EQ(choose_ptq(last, weights, /*all=*/false, cpu).results[0].loss, all.results.back().loss);
  set_verbosity(Verbosity::normal);
}

TEST(Repair, WhatCannotBeRepairedIsRefusedBeforeTraining) {
  const Folder folder("repair_refused");
  Recipe recipe = repaired();
  recipe.model.graph = {{"conv1", "conv2d", {}, {{"out_channels", 4}, {"kernel", 8}, {"bias", 0}}}};
  const auto refusal = [&] {
    return message_of(ExitCode::usage, [&] { train(recipe, {folder.path() + "/run"}, {}); });
  };
  EXPECT_NE(refusal().find("no two layers can be equalized"), std::string::npos);
  recipe.calibrate.equalize = false;
  EXPECT_NE(refusal().find("layer 'conv1' has neither a bias nor a BatchNorm"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/run"));
}

}  // namespace
}  // namespace octet
