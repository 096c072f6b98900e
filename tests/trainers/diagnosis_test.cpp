// SPDX-License-Identifier: Apache-2.0
// The diagnosis names the layer that was destroyed, says how, and which keys help.
#include "trainers/run/measure.h"

#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/trainers/calibrated_run.h"
#include "trainers/run/ptq_search.h"

namespace octet {
namespace {

using testing_trainers::CalibratedRun;
using testing_trainers::Folder;
using testing_trainers::node_named;
using testing_trainers::tiny_recipe;

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

/// The layer that the text names first, as the one that loses most alone.
std::string worst_of(const std::string& text) {
  const size_t from = text.find(", alone '") + 9;
  return text.substr(from, text.find('\'', from) - from);
}

TEST(Diagnosis, NamesTheLayerWhoseRangeIsDestroyedAndHow) {
  for (const std::string layer : {"conv1", "conv2"}) {
    for (const float factor : {0.003f, 100.0f}) {
      const Folder folder("diagnosis_range");
      Recipe recipe = tiny_recipe();
      recipe.calibrate.method = CalibrationMethod::minmax;
      recipe.quant.scales = EdgeScales::fixed;
      CalibratedRun c(recipe, folder.path());
      const int n = node_named(c.model, layer);
      std::vector<QParams> edges = c.model.edges();
      edges[n].scale *= factor;
      c.model.set_edges(edges);
      const std::string text = diagnose(c.run, c.model);
      EXPECT_EQ(worst_of(text), layer) << text;
      EXPECT_EQ(has(text, " of its values"), factor < 1) << text;
      EXPECT_EQ(has(text, "its values take "), factor > 1) << text;
      EXPECT_TRUE(has(text, "Tried: ranges by calibrate.method minmax, QAT of 2 epochs with quant.scales fixed."))
          << text;
      EXPECT_TRUE(has(text, "May help: calibrate.method: auto; quant.scales: observed; ")) << text;
      const std::string kept = diagnose(c.run, c.model, {.froze = true, .ruined = true});
      EXPECT_FALSE(has(kept, "quant.scales: observed")) << "statistics that follow had ruined it: " << kept;
      c.run.recipe.quant.scales.reset();
      const std::string of_auto = diagnose(c.run, c.model, {EdgeScales::fixed});
      EXPECT_TRUE(has(of_auto, "with quant.scales auto: fixed.")) << of_auto;
      EXPECT_FALSE(has(of_auto, "quant.scales: observed"))
          << "auto lets them follow where less is lost so: " << of_auto;
      const std::string observed = diagnose(c.run, c.model, {EdgeScales::observed});
      EXPECT_TRUE(has(observed, "with quant.scales auto: observed.")) << observed;
      EXPECT_FALSE(has(observed, "quant.scales: observed")) << observed;
      EXPECT_FALSE(has(text, "weight_bits") || has(text, "activation_bits")) << text;  // of eight
    }
  }
}

TEST(Diagnosis, NamesTheLayerWhoseWeightsHaveAScaleFarTooWide) {
  const Folder folder("diagnosis_weights");
  Recipe recipe = tiny_recipe();
  recipe.quant.weight_bits = 6;
  recipe.quant.weight_calibrator = WeightCalibrator::lsq;
  CalibratedRun c(recipe, folder.path());
  at::Tensor scales = c.model.learned_scales().at("weights.scale").detach();
  scales.slice(0, 8, 16).mul_(15);  // of conv2, behind the eight of conv1
  const std::string text = diagnose(c.run, c.model);
  EXPECT_EQ(worst_of(text), "conv2") << text;
  EXPECT_TRUE(has(text, "(weights of 6 bits lose ")) << text;
  EXPECT_TRUE(has(text, "quant.layers: [{match: \"conv2\", weight_bits: 8}]")) << text;
}

TEST(Diagnosis, SaysWhereTheImagesChangeNoOutputByACode) {
  const Folder folder("diagnosis_silent");
  CalibratedRun c(tiny_recipe(), folder.path());
  EXPECT_FALSE(has(diagnose(c.run, c.model), " says nothing on "));
  {
    const c10::NoGradGuard no_grad;
    at::Tensor bias = c.weights.at("fc.bias");
    bias.add_(1e5);
  }
  const std::string text = diagnose(c.run, c.model);
  EXPECT_TRUE(has(text, ". But output 'fc' says nothing on 32 of 32 images, ")) << text;
}

/// With two bits this network differs significantly from the float network, with eight it does not.
TEST(Diagnosis, IsInTheReportOfARunWhereInt8IsSignificantlyWorseAndNowhereElse) {
  for (const int bits : {8, 2}) {
    const Folder folder("diagnosis_report");
    Recipe recipe = tiny_recipe();
    recipe.train.epochs = 8;
    recipe.qat.epochs = 0;
    recipe.quant.weight_bits = recipe.quant.activation_bits = bits;
    const Report report = train(recipe, {folder.path() + "/run"}, {}).value();
    const auto is_told = [](const std::string& note) { return note.starts_with("what int8 loses: "); };
    EXPECT_EQ(std::count_if(report.notes.begin(), report.notes.end(), is_told), bits == 2) << bits;
    if (bits == 8) continue;
    EXPECT_TRUE(is_told(report.notes.back()) && has(report.notes.back(), "qat.epochs: 3 or more"))
        << report.notes.back();
    // octet calibrate says the same of the same weights.
    octet::Run run = open_run(recipe, {folder.path() + "/run"});
    const PtqChoice choice =
        choose_ptq(run, load_float(run), /*all=*/false,
                   [](const octet::Run& r, const Int8Graph& g) { return compile_engine(r, "cpu", g); });
    EXPECT_EQ(choice.diagnosis, report.notes.back());
  }
}

}  // namespace
}  // namespace octet
