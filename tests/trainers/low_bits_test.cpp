// SPDX-License-Identifier: Apache-2.0
// What QAT is for: at two bits little is left of a network that is quantized after training, and most of one that was
// trained with fake quantization.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/source_dir.h"
#include "tests/trainers/calibrated_run.h"
#include "trainers/run/measure.h"

namespace octet {
namespace {

using testing_trainers::Folder;

/// The shipped recipe on a tenth of its images; figures are of validation images, so that no test image was ever
/// looked at for it. Ranges cut off an eighth of the values: what the gradient does beyond the clip edge decides. QAT
/// ends at 80.2 (float 82.0, PTQ 12.5), at 68.2 if gradients pass everywhere, at 68.5 if they pass nowhere.
Recipe small_w2a2() {
  return read_recipe(source_dir() + "/recipes/small_cnn_fashion_mnist_w2a2.yaml",
                     {"data.limit_train=6016", "data.validation_fraction=0.1", "data.limit_validation=2000",
                      "data.limit_test=16", "calibrate.method=percentile", "calibrate.percentile=88", "threads=1"});
}

double top1(const Run& run, const char* name, Program& program) {
  return 100 * measure(run, name, program, run.data.validation_images()).evaluation.top1;
}

/// Returns the top-1 of the recipe's QAT from these float weights, with other settings of section quant.
double qat_top1(Run run, const Weights& float_weights, const std::string& folder, EdgeScales scales,
                WeightCalibrator weight_calibrator, double* ptq = nullptr) {
  run.directory = {folder};
  run.recipe.quant.scales = scales;
  run.recipe.quant.weight_calibrator = weight_calibrator;
  start_run_directory(run.directory, run.recipe, {});
  Weights weights;
  for (const auto& [name, w] : float_weights)
    weights.emplace(name, w.detach().clone().set_requires_grad(w.requires_grad()));
  QuantizedModel model = make_quantized(run, weights);
  calibrate(model, run);
  if (ptq != nullptr) *ptq = top1(run, "ptq", *qat_graph_program(model, run.preprocessing));
  train_qat(run, model, false);
  return top1(run, "qat", *qat_graph_program(model, run.preprocessing));
}

/// Learned scales end at 80.9.
TEST(LowBits, TwoBitsAfterTrainingLoseMostAndQatWithFixedOrLearnedScalesGivesItBack) {
  const Recipe recipe = small_w2a2();
  if (!std::filesystem::exists(recipe.data.path))
    GTEST_SKIP() << "no " << recipe.data.path << ": apt-get install dataset-fashion-mnist";
  const Folder folder("low_bits"), plain("low_bits_plain"), learned("low_bits_lsq");
  auto run = open_run(recipe, {folder.path()});
  start_run_directory(run.directory, recipe, {});
  Weights weights = starting_weights(run);
  train_float(run, weights, false);
  const double of_float = top1(run, "float", *float_program(run.graph, weights, run.preprocessing));
  double ptq = 0;
  const double qat = qat_top1(run, weights, plain.path(), EdgeScales::fixed, WeightCalibrator::mse, &ptq);
  const double lsq = qat_top1(run, weights, learned.path(), EdgeScales::lsq, WeightCalibrator::lsq);
  RecordProperty("float_ptq_qat_lsq", std::to_string(of_float) + " " + std::to_string(ptq) + " " + std::to_string(qat) +
                                          " " + std::to_string(lsq));
  EXPECT_GE(qat, ptq + 20);
  EXPECT_GE(qat, of_float - 6);
  EXPECT_GE(lsq, of_float - 6);
}

}  // namespace
}  // namespace octet
