// SPDX-License-Identifier: Apache-2.0
// calibrate.method, quant.scales and qat.freeze_batch_norm auto: what octet chooses where the recipe says nothing.
#include "trainers/run/auto_ranges.h"

#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "src/base/progress.h"
#include "src/train/model/device.h"
#include "tests/trainers/calibrated_run.h"
#include "trainers/run/qat_start.h"

namespace octet {
namespace {

using testing_trainers::CalibratedRun;
using testing_trainers::Folder;
using testing_trainers::tiny_recipe;

/// At three bits the methods' ranges differ.
Recipe recipe_with(std::optional<CalibrationMethod> method) {
  Recipe recipe = tiny_recipe();
  recipe.quant.activation_bits = 3;
  recipe.calibrate.images = 96;
  recipe.calibrate.method = method;
  return recipe;
}

/// What the network loses on the validation images that auto chooses by.
double lost(CalibratedRun& c) {
  const std::vector<at::Tensor> x = validation_inputs(c.run, 12);
  return OutputErrors(c.model, x, float_outputs(c.model, x)).lost();
}

TEST(AutoRanges, LoseLessThanThoseOfEveryMethod) {
  const Folder folder("auto_ranges");
  CalibratedRun chosen(recipe_with(std::nullopt), folder.path() + "/auto");
  for (const auto& [method, name] : kCalibrationMethods) {
    CalibratedRun one(recipe_with(method), folder.path() + "/" + std::string(name));
    EXPECT_LT(lost(chosen), lost(one)) << name;
  }
}

TEST(AutoRanges, AreToldWithTheReasonAndKeptInTheReport) {
  const Folder folder("auto_ranges_report");
  const Report report = train(recipe_with(std::nullopt), {folder.path() + "/run"}, {}).value();
  const auto is_told = [](const std::string& note) {
    return note.starts_with("calibrate.method auto: ") && note.find("for 12 validation images (mse ") != note.npos &&
           note.find(", entropy ") != note.npos;
  };
  EXPECT_EQ(std::count_if(report.notes.begin(), report.notes.end(), is_told), 1);
  CalibratedRun one(recipe_with(CalibrationMethod::minmax), folder.path() + "/one");
  EXPECT_EQ(calibrate(one.model, one.run).chosen, "");
}

TEST(AutoScales, AreLearnedBelowEightBitsAndElsewhereObservedWherePossible) {
  const auto scales = [](const std::function<void(octet::Run&)>& change) {
    octet::Run run{.recipe = tiny_recipe()};
    change(run);
    return edge_scales(run);
  };
  EXPECT_EQ(scales([](octet::Run&) {}), EdgeScales::observed);
  EXPECT_EQ(scales([](octet::Run& run) { run.recipe.quant.weight_bits = 4; }), EdgeScales::observed);
  EXPECT_EQ(scales([](octet::Run& run) { run.recipe.quant.activation_bits = 4; }), EdgeScales::lsq);
  EXPECT_EQ(scales([](octet::Run& run) { run.recipe.quant.layers = {{"conv1", 8, 6}}; }), EdgeScales::lsq);
  EXPECT_EQ(scales([](octet::Run& run) { run.recipe.quant.layers = {{"conv1", 6, 0}}; }), EdgeScales::observed);
  EXPECT_EQ(scales([](octet::Run& run) { run.recipe.parallel.stages = {"conv1"}; }), EdgeScales::fixed);
  EXPECT_EQ(scales([](octet::Run& run) { run.recipe.qat.epochs = 0; }), EdgeScales::fixed);
  EXPECT_EQ(scales([](octet::Run& run) { run.recipe.quant.scales = EdgeScales::fixed; }), EdgeScales::fixed);
  const std::shared_ptr<Ranks> several(std::shared_ptr<void>(), reinterpret_cast<Ranks*>(1));  // only asked whether
  EXPECT_EQ(scales([&](octet::Run& run) { run.ranks = several; }), EdgeScales::observed);
  EXPECT_EQ(scales([&](octet::Run& run) {
              run.ranks = several;
              run.device = testing_trainers::kGpu;
            }),
            EdgeScales::fixed);
}

/// Weights of two bits lose most of the outputs, those of eight hardly any.
TEST(AutoScales, StayAsCalibratedWhereThatLosesLittleAndFollowTheDataElsewhere) {
  for (const int bits : {8, 2}) {
    const Folder folder("auto_scales");
    Recipe recipe = tiny_recipe();
    recipe.quant.weight_bits = bits;
    CalibratedRun c(recipe, folder.path());
    const std::vector<QParams> before = c.model.edges();
    EXPECT_EQ(train_qat(c.run, c.model, false).scales, bits == 8 ? EdgeScales::fixed : EdgeScales::observed);
    EXPECT_EQ(c.model.edges() == before, bits == 8) << bits;
  }
}

/// What calibration measured, quant.scales auto goes by; after a repair it is not known any more.
TEST(AutoScales, GoByWhatCalibrationMeasured) {
  const Folder folder("auto_scales_known");
  CalibratedRun c(tiny_recipe(), folder.path());
  const CalibratedRanges ranges = calibrate(c.model, c.run);
  EXPECT_NEAR(ranges.lost.value(), HeldBack(c.model, c.run).lost(c.model), 1e-9);
  const std::vector<QParams> before = c.model.edges();
  train_qat(c.run, c.model, false, interrupted, 0.5);
  EXPECT_NE(c.model.edges(), before);
  c.run.recipe.qat.epochs = 0;
  c.run.recipe.calibrate.bias_correction = true;
  EXPECT_FALSE(calibrate(c.model, c.run).lost);
}

/// Returns whether start_qat() gives scales that learn by themselves, at four bits, other ranges than calibration.
bool learned_start_moves(const CalibratedRun& c) {
  octet::Run run = c.run;
  run.recipe.quant.activation_bits = 4;
  QuantizedModel model = make_quantized(run, copies_of(c.weights));
  calibrate(model, run);
  const std::vector<QParams> before = model.edges();
  EXPECT_EQ(start_qat(run, model, std::nullopt).scales, EdgeScales::lsq);
  return model.edges() != before;
}

/// Running statistics that are not those of any batch make the values of training a hundred times as wide as those of
/// evaluation, which calibration saw: ranges that stay would cut nearly all of them off.
TEST(AutoFreeze, StatisticsStayFromTheFirstStepWhereRangesFitThemAlone) {
  for (const bool far : {false, true}) {
    const Folder folder("auto_freeze");
    Recipe recipe = tiny_recipe();
    recipe.calibrate.images = 128;
    recipe.calibrate.batch_size = 64;
    CalibratedRun c(recipe, folder.path());
    ASSERT_FALSE(c.run.recipe.qat.freeze_batch_norm);
    {
      const c10::NoGradGuard no_grad;
      const at::Tensor x = validation_inputs(c.run, 32).at(0);
      for (int step = 0; step < 100; ++step) c.model.forward(x, {.batch_norm_training = true, .quantize = false});
    }
    if (far) c.weights.at("bn1.running_var").detach().mul_(1e4);
    calibrate(c.model, c.run);
    const at::Tensor mean = c.weights.at("bn1.running_mean").detach().clone();
    const std::vector<QParams> edges = c.model.edges();
    const double lost = lost_in_training(c.model, c.run);
    EXPECT_TRUE(far ? lost > 0.3 : lost < 0.01) << lost;
    EXPECT_TRUE(c.weights.at("bn1.running_mean").equal(mean) && c.model.edges() == edges) << "measuring moves nothing";
    const auto freezes = [&](std::optional<double> wanted, std::optional<EdgeScales> scales, double lost_calibrated) {
      octet::Run run = c.run;
      run.recipe.qat.freeze_batch_norm = wanted;
      run.recipe.quant.scales = scales;
      QuantizedModel model = make_quantized(run, copies_of(c.weights));
      calibrate(model, run);
      return start_qat(run, model, lost_calibrated).freeze_batch_norm;
    };
    EXPECT_EQ(freezes({}, {}, 0.01), far ? 0 : 0.5);
    EXPECT_EQ(freezes({}, EdgeScales::fixed, 0.5), 0.5) << "much is lost with the running statistics, too";
    EXPECT_EQ(freezes({}, EdgeScales::lsq, 0.01), far ? 0 : 0.5);
    EXPECT_EQ(freezes({}, {}, 0.1), far ? 0 : 0.5) << "as calibrated more than 2 % is lost, and in a batch much more";
    EXPECT_EQ(freezes(0.75, {}, 0.01), 0.75);
    EXPECT_EQ(freezes({}, EdgeScales::observed, 0.01), 0.5) << "ranges that follow follow what training sees";
    EXPECT_EQ(learned_start_moves(c), !far) << "scales that learn begin as calibrated where statistics stay";
    save_weights(c.weights, c.run.directory.float_weights());
    train_qat(c.run, c.model, false);
    EXPECT_EQ(c.weights.at("bn1.running_mean").equal(mean), far);
    const Weights control = train_float_control(c.run, false);
    EXPECT_FALSE(control.at("bn1.running_mean").equal(mean)) << "the float control has no ranges that want it";
  }
}

/// Random weights have statistics of nothing, and a folded network has none that could stay.
TEST(AutoFreeze, StatisticsThatNobodyMadeDoNotStay) {
  const Folder folder("auto_freeze_none");
  Recipe recipe = tiny_recipe();
  recipe.quant.first_layer_bits = recipe.quant.last_layer_bits = recipe.quant.weight_bits = 2;  // which lose much
  CalibratedRun random(recipe, folder.path() + "/random");
  EXPECT_GT(lost_in_training(random.model, random.run), 0.02);
  EXPECT_EQ(start_qat(random.run, random.model, 0.0).freeze_batch_norm, 0.5);
  recipe.model.graph = {{"conv1", "conv2d", {}, {{"out_channels", 4}, {"kernel", 3}}},
                        {"relu1", "relu", {}, {}},
                        {"flat", "flatten", {}, {}},
                        {"fc", "linear", {}, {{"out_channels", 4}}}};
  CalibratedRun c(recipe, folder.path() + "/folded");
  EXPECT_GT(lost_in_training(c.model, c.run), 0.02);
  EXPECT_EQ(start_qat(c.run, c.model, 0.0).freeze_batch_norm, 0.5);
}

}  // namespace
}  // namespace octet
