// SPDX-License-Identifier: Apache-2.0
// calibrate.method, quant.scales and qat.freeze_batch_norm auto: what octet chooses where the recipe says nothing.
#include "trainers/run/auto_ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/base/files.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/train/model/device.h"
#include "tests/trainers/calibrated_run.h"
#include "trainers/run/in_training.h"
#include "trainers/run/measure.h"
#include "trainers/run/qat_start.h"

namespace octet {
namespace {

using testing_trainers::CalibratedRun;
using testing_trainers::Folder;
using testing_trainers::make_statistics;
using testing_trainers::node_named;
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
  EXPECT_EQ(scales([](octet::Run& run) { run.recipe.quant.last_layer_bits = 4; }), EdgeScales::lsq);
  EXPECT_EQ(scales([](octet::Run& run) { run.recipe.quant.residual_bits = 6; }), EdgeScales::lsq);
  EXPECT_EQ(scales([](octet::Run& run) { run.recipe.quant.residual_bits = 8; }), EdgeScales::observed);
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

TEST(AutoScales, StayAsCalibratedWhereThatLosesLittle) {
  const Folder folder("auto_scales");
  CalibratedRun c(tiny_recipe(), folder.path());
  const std::vector<QParams> before = c.model.edges();
  EXPECT_EQ(train_qat(c.run, c.model, false).scales, EdgeScales::fixed);
  EXPECT_EQ(c.model.edges(), before);
}

/// Where they lose much they follow the data if a batch loses less so: ranges that clip what matters do, those that
/// clip what no one reads do not, though those that follow take it in. A batch is normalized as in the first step.
TEST(AutoScales, FollowTheDataOnlyWhereABatchLosesLessSo) {
  for (const bool matters : {true, false}) {
    for (const double freeze : {0.0, 0.5}) {
      const Folder folder("auto_scales_follow");
      Recipe recipe = tiny_recipe();
      recipe.qat.freeze_batch_norm = freeze;
      CalibratedRun c(recipe, folder.path());
      make_statistics(c);
      calibrate(c.model, c.run);
      std::vector<QParams> edges = c.model.edges();
      if (matters) {
        edges[node_named(c.model, "conv1")].scale /= 20;
        c.model.set_edges(edges);
      } else {
        const c10::NoGradGuard no_grad;
        c.weights.at("bn1.weight")[0].fill_(1000);
        c.weights.at("conv2.weight").select(1, 0).zero_();
      }
      const InTraining seen = in_training(c.model, c.run, freeze > 0).value();
      EXPECT_EQ(seen.moved > 0, freeze > 0);
      const QatStart start = train_qat(c.run, c.model, false, interrupted, matters ? std::optional<double>() : 0.1);
      EXPECT_EQ(start.scales, matters ? EdgeScales::observed : EdgeScales::fixed) << start.notes.back();
      EXPECT_EQ(c.model.edges() == edges, !matters);
      EXPECT_NE(start.notes.back().find(" of the outputs are lost, more than 2.00 %; a training batch loses " +
                                        percent(seen.lost) + " with the calibrated ranges, "),
                std::string::npos)
          << start.notes.back();
    }
  }
}

/// What calibration measured, quant.scales auto goes by; after a repair, too, it is of the float network as it was.
TEST(AutoScales, GoByWhatCalibrationMeasured) {
  const Folder folder("auto_scales_known");
  CalibratedRun c(tiny_recipe(), folder.path());
  const CalibratedRanges ranges = calibrate(c.model, c.run);
  EXPECT_NEAR(ranges.lost.value(), HeldBack(c.model, c.run).lost(c.model), 1e-9);
  const std::vector<QParams> before = c.model.edges();
  train_qat(c.run, c.model, false, interrupted, 0.5);
  EXPECT_NE(c.model.edges(), before);
  CalibratedRun repaired(recipe_with(std::nullopt), folder.path() + "/repaired");
  const HeldBack uncorrected(repaired.model, repaired.run);
  repaired.run.recipe.calibrate.bias_correction = true;
  const double lost = calibrate(repaired.model, repaired.run).lost.value();
  EXPECT_NEAR(lost, uncorrected.lost(repaired.model), 1e-9);
  EXPECT_GT(std::abs(lost - HeldBack(repaired.model, repaired.run).lost(repaired.model)), 1e-5);
  CalibratedRun one(recipe_with(CalibrationMethod::mse), folder.path() + "/one");
  EXPECT_FALSE(calibrate(one.model, one.run).lost);
  one.run.recipe.calibrate.bias_correction = true;
  EXPECT_TRUE(calibrate(one.model, one.run).lost);
}

/// What start_qat() chooses for a calibrated network whose running statistics are those of its images, whose ranges cut
/// off most of what training sees, or whose statistics are not those of any batch, as after a short float phase.
enum class Case { fits, narrow, stale };

TEST(AutoFreeze, StatisticsStayFromTheFirstStepWhereRangesFitThemAlone) {
  for (const Case of : {Case::fits, Case::narrow, Case::stale}) {
    SCOPED_TRACE(static_cast<int>(of));
    const Folder folder("auto_freeze");
    Recipe recipe = tiny_recipe();
    recipe.calibrate.images = 128;
    recipe.calibrate.batch_size = 64;
    CalibratedRun c(recipe, folder.path());
    ASSERT_FALSE(c.run.recipe.qat.freeze_batch_norm);
    make_statistics(c);
    if (of == Case::stale) c.weights.at("bn1.running_var").detach().mul_(1e4);
    const auto calibrated = [&](octet::Run& run, QuantizedModel& model) {
      calibrate(model, run);
      std::vector<QParams> edges = model.edges();
      if (of == Case::narrow)
        for (QParams& edge : edges) edge.scale /= 30;
      model.set_edges(edges);
    };
    calibrated(c.run, c.model);
    const at::Tensor mean = c.weights.at("bn1.running_mean").detach().clone();
    const std::vector<QParams> edges = c.model.edges();
    const InTraining seen = in_training(c.model, c.run).value();
    EXPECT_TRUE(of == Case::fits ? seen.lost < 0.01 : seen.lost > 0.3) << seen.lost;
    EXPECT_TRUE(of == Case::stale ? seen.moved > 0.5 : seen.moved < 0.2) << seen.moved;
    EXPECT_TRUE(c.weights.at("bn1.running_mean").equal(mean) && c.model.edges() == edges) << "measuring moves nothing";
    const bool stay = of == Case::narrow;
    const auto started = [&](std::optional<double> wanted, std::optional<EdgeScales> scales, double lost_calibrated,
                             int bits = 8) {
      octet::Run run = c.run;
      run.recipe.qat.freeze_batch_norm = wanted;
      run.recipe.quant.scales = scales;
      run.recipe.quant.activation_bits = bits;
      QuantizedModel model = make_quantized(run, copies_of(c.weights));
      calibrated(run, model);
      const std::vector<QParams> before = model.edges();
      const QatStart start = start_qat(run, model, lost_calibrated);
      return std::pair(start, model.edges() != before);
    };
    const auto freezes = [&](std::optional<double> wanted, std::optional<EdgeScales> scales, double lost_calibrated) {
      return started(wanted, scales, lost_calibrated).first.freeze_batch_norm;
    };
    EXPECT_EQ(freezes({}, {}, 0.01), stay ? 0 : 0.5);
    EXPECT_EQ(freezes({}, EdgeScales::fixed, 0.5), 0.5) << "much is lost with the running statistics, too";
    EXPECT_EQ(freezes({}, EdgeScales::lsq, 0.01), stay ? 0 : 0.5);
    EXPECT_EQ(freezes({}, {}, 0.1), stay ? 0 : 0.5) << "as calibrated more than 2 % is lost, and in a batch much more";
    EXPECT_EQ(freezes(0.75, {}, 0.01), 0.75);
    EXPECT_EQ(freezes({}, EdgeScales::observed, 0.01), 0.5) << "ranges that follow follow what training sees";
    const auto [learned, moved] = started({}, {}, stay ? 0.01 : 0.5, 4);
    EXPECT_EQ(learned.scales, EdgeScales::lsq);
    EXPECT_EQ(moved, of == Case::stale) << "scales that learn begin as calibrated, unless a batch wants far others";
    EXPECT_EQ(learned.notes.back().find("ranges begin at the values that training sees") != std::string::npos, moved);
    save_weights(c.weights, c.run.directory.float_weights());
    const QatStart start = train_qat(c.run, c.model, false, interrupted, 0.01);
    EXPECT_EQ(start.froze, stay);
    EXPECT_EQ(start.stale, of == Case::stale);
    EXPECT_EQ(start.scales, of == Case::stale ? EdgeScales::observed : EdgeScales::fixed);
    EXPECT_EQ(start.notes.front().find("are not those of these images") != std::string::npos, of == Case::stale);
    EXPECT_EQ(kept_qat_start(c.run.directory).value().notes, start.notes);
    EXPECT_EQ(started({}, {}, 0.01).second, of == Case::stale) << "ranges of other statistics are found anew";
    EXPECT_EQ(c.weights.at("bn1.running_mean").equal(mean), stay);
    const std::string text = diagnose(c.run, c.model, start);
    for (const char* part : {"and qat.freeze_batch_norm auto: 0", "qat.freeze_batch_norm: 0.5"})
      EXPECT_EQ(text.find(part) != std::string::npos, stay) << text;
    const Weights control = train_float_control(c.run, false);
    EXPECT_FALSE(control.at("bn1.running_mean").equal(mean)) << "the float control has no ranges that want it";
  }
}

/// Where a batch loses more than a third of its outputs either way, ranges that learn begin where it loses less.
TEST(AutoStart, RangesThatLearnBeginWhereABatchLosesLess) {
  const Folder folder("auto_start");
  Recipe recipe = tiny_recipe();
  recipe.calibrate.images = 128;
  recipe.quant.input_bits = recipe.quant.activation_bits = recipe.quant.last_layer_bits = 2;
  recipe.qat.freeze_batch_norm = 0.75;
  CalibratedRun c(recipe, folder.path());
  make_statistics(c);
  calibrate(c.model, c.run);
  c.run.recipe.calibrate.method = CalibrationMethod::percentile;  // by which others are found
  c.run.recipe.calibrate.percentile = 51;
  const std::vector<QParams> calibrated = c.model.edges();
  const auto begins = [&](float times) {
    const auto started = [&](const std::optional<QatStart>& kept) {
      QuantizedModel model = make_quantized(c.run, copies_of(c.weights));
      calibrate(model, c.run);
      std::vector<QParams> edges = calibrated;
      for (QParams& edge : edges) edge.scale *= times;
      model.set_edges(edges);
      EXPECT_GT(in_training(model, c.run).value().lost, 1.0 / 3);
      const QatStart start = start_qat(c.run, model, {}, kept);
      return std::pair(start, model.edges() != edges);
    };
    const auto [start, moved] = started({});
    const bool told = !start.notes.empty() &&
                      start.notes.back().find("ranges begin at the values that training sees") != std::string::npos;
    EXPECT_EQ(told, moved);
    const auto [again, moved_again] = started(start);
    EXPECT_EQ(again.notes, start.notes) << "a training that goes on says it once";
    EXPECT_EQ(moved_again, moved);
    return told;
  };
  EXPECT_FALSE(begins(1)) << "ranges that clip half of the values lose more";
  EXPECT_TRUE(begins(100)) << "codes that nothing reaches lose more";
}

/// A number near its threshold must not choose otherwise when a training goes on.
TEST(AutoFreeze, ATrainingThatGoesOnKeepsWhatItBeganWith) {
  const Folder folder("auto_freeze_kept");
  CalibratedRun c(tiny_recipe(), folder.path());
  EXPECT_FALSE(kept_qat_start(c.run.directory));
  keep_qat_start(c.run.directory, {EdgeScales::observed, 0.25, true, true, true, {"why"}});
  const QatStart kept = kept_qat_start(c.run.directory).value();
  EXPECT_EQ(kept.scales, EdgeScales::observed);
  EXPECT_EQ(kept.freeze_batch_norm, 0.25);
  EXPECT_TRUE(kept.froze && kept.stale && kept.ruined);
  EXPECT_EQ(kept.notes, std::vector<std::string>{"why"});
  const auto resumed = [&] {
    QuantizedModel model = make_quantized(c.run, starting_weights(c.run));
    calibrate(model, c.run);
    return train_qat(c.run, model, true).freeze_batch_norm;
  };
  EXPECT_EQ(resumed(), 0.25) << "stopped before its first state";
  EXPECT_EQ(resumed(), 0.25) << "finished";
  write_file_atomically(c.run.directory.qat_start(), R"({"scales": "lsqq", "freeze_batch_norm": 0, "froze": true})");
  try {
    kept_qat_start(c.run.directory);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_NE(std::string(error.what()).find("qat.start: not what octet wrote"), std::string::npos) << error.what();
  }
}

/// One image has statistics of its own, of which nothing follows.
TEST(AutoFreeze, AFewImagesDecideNothing) {
  const Folder folder("auto_freeze_few");
  Recipe recipe = tiny_recipe();
  recipe.calibrate.images = 3;
  recipe.qat.batch_size = 8;
  recipe.quant.first_layer_bits = recipe.quant.weight_bits = 2;  // which lose much
  CalibratedRun c(recipe, folder.path());
  EXPECT_FALSE(in_training(c.model, c.run));
  const QatStart start = start_qat(c.run, c.model, 0.5);
  EXPECT_EQ(start.freeze_batch_norm, kUsualFreeze);
  EXPECT_EQ(start.scales, EdgeScales::observed);
  EXPECT_NE(start.notes.back().find("too few to ask what a batch loses"), std::string::npos) << start.notes.back();
  c.run.recipe.qat.batch_size = 6;
  EXPECT_GT(in_training(c.model, c.run).value().lost, 0.02);
}

/// Random weights have statistics of nothing, and a folded network has none that could stay.
TEST(AutoFreeze, StatisticsThatNobodyMadeDoNotStay) {
  const Folder folder("auto_freeze_none");
  Recipe recipe = tiny_recipe();
  recipe.quant.first_layer_bits = recipe.quant.last_layer_bits = recipe.quant.weight_bits = 2;  // which lose much
  CalibratedRun random(recipe, folder.path() + "/random");
  EXPECT_GT(in_training(random.model, random.run).value().lost, 0.02);
  EXPECT_EQ(start_qat(random.run, random.model, 0.0).freeze_batch_norm, 0.5);
  recipe.model.graph = {{"conv1", "conv2d", {}, {{"out_channels", 4}, {"kernel", 3}}},
                        {"relu1", "relu", {}, {}},
                        {"flat", "flatten", {}, {}},
                        {"fc", "linear", {}, {{"out_channels", 4}}}};
  CalibratedRun c(recipe, folder.path() + "/folded");
  EXPECT_GT(in_training(c.model, c.run).value().lost, 0.02);
  EXPECT_EQ(start_qat(c.run, c.model, 0.0).freeze_batch_norm, 0.5);
}

}  // namespace
}  // namespace octet
