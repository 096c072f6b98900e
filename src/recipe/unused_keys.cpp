// SPDX-License-Identifier: Apache-2.0
// Which keys mean nothing beside another, and the refusal of those that the user set.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/base/names.h"
#include "src/recipe/schema.h"

namespace octet {
namespace {

/// A key that is read with some values of other keys only.
struct Dependent {
  std::string key;
  bool read;                          ///< by the recipe as it is
  std::vector<std::string> switches;  ///< the other keys
  std::string value;                  ///< of the first of them
  std::string cure;                   ///< what it would have to be
};

void add_optimizer(std::vector<Dependent>& all, const OptimizerRecipe& o, const std::string& section) {
  const std::string schedule(name_in(kSchedules, o.schedule)), optimizer(name_in(kOptimizers, o.optimizer));
  const bool step = o.schedule == ScheduleKind::step, sgd = o.optimizer == OptimizerKind::sgd;
  for (const char* key : {"milestones", "gamma"})
    all.push_back({section + "." + key, step, {section + ".schedule"}, schedule, "step"});
  for (const char* key : {"momentum", "nesterov"})
    all.push_back({section + "." + key, sgd, {section + ".optimizer"}, optimizer, "sgd"});
  all.push_back({section + ".ema_ramp", o.ema > 0, {section + ".ema"}, "0", "more than 0"});
  for (const char* key : {"beta1", "beta2"})
    all.push_back({section + "." + key, !sgd, {section + ".optimizer"}, optimizer, "adamw"});
}

void add_calibrate(std::vector<Dependent>& all, const CalibrateRecipe& c) {
  const std::string method(name_or_auto(kCalibrationMethods, c.method)),
      rounding(name_in(kWeightRoundings, c.rounding));
  const bool rounds = c.rounding != WeightRounding::nearest, distills = c.distill_steps > 0;
  all.push_back(
      {"calibrate.percentile", c.method == CalibrationMethod::percentile, {"calibrate.method"}, method, "percentile"});
  for (const char* key : {"calibrate.rounding_steps", "calibrate.rounding_learning_rate"})
    all.push_back({key, rounds, {"calibrate.rounding"}, rounding, "adaround or block"});
  all.push_back({"calibrate.repair_images",
                 rounds || c.bias_correction,
                 {"calibrate.rounding", "calibrate.bias_correction"},
                 rounding,
                 "adaround or block, or calibrate.bias_correction"});
  for (const char* key : {"calibrate.distill_learning_rate", "calibrate.distill_temperature"})
    all.push_back({key, distills, {"calibrate.distill_steps"}, "0", "more than 0"});
}

void add_observers(std::vector<Dependent>& all, const QuantRecipe& q) {
  const std::string scales(name_or_auto(kEdgeScales, q.scales)), observer(name_in(kObserverKinds, q.observer));
  const bool observed = q.scales == EdgeScales::observed;
  for (const char* key : {"quant.observer", "quant.averaging", "qat.freeze_observers"})
    all.push_back({key, observed, {"quant.scales"}, scales, "observed"});
  all.push_back(
      {"quant.averaging", q.observer == ObserverKind::moving_average, {"quant.observer"}, observer, "moving_average"});
}

std::vector<Dependent> dependents(const Recipe& recipe) {
  const DataRecipe& data = recipe.data;
  std::vector<Dependent> all;
  all.push_back({"data.crop_area_min", data.random_resized_crop, {"data.random_resized_crop"}, "false", "true"});
  for (const char* key : {"data.synthetic_size", "data.synthetic_classes"})
    all.push_back({key, data.format == "synthetic", {"data.format"}, data.format, "synthetic"});
  all.push_back({"data.ignore_index",
                 data.format == "image_folder" && data.labels == Labels::pixels,
                 {"data.labels"},
                 std::string(name_in(kLabels, data.labels)),
                 "pixels, of image_folder"});
  all.push_back({"data.leave_out_faults", has_boxes(data.format), {"data.format"}, data.format, "coco, voc or yolo"});
  all.push_back({"model.new_layers", !recipe.model.weights.empty(), {"model.weights"}, "\"\"", "a file"});
  all.push_back({"model.whiten", recipe.model.weights.empty(), {"model.weights"}, recipe.model.weights, "\"\""});
  all.push_back({"model.whiten", recipe.model.onnx.empty(), {"model.onnx"}, recipe.model.onnx, "\"\""});
  const int longest = std::max(recipe.train.epochs, recipe.qat.epochs);
  for (const char* key : {"data.mosaic", "data.mixup"})
    all.push_back({key,
                   longest == 0 || longest > data.mosaic_off,
                   {"data.mosaic_off", "train.epochs", "qat.epochs"},
                   fmt::format("{} and at most {} epochs a phase", data.mosaic_off, longest),
                   "data.mosaic_off below them"});
  const auto has_end = [](const OptimizerRecipe& o) { return o.box_l1 || o.schedule == ScheduleKind::yolox; };
  all.push_back({"data.mosaic_off",
                 data.mosaic > 0 || data.mixup > 0 || has_end(recipe.train) || has_end(recipe.qat),
                 {"data.mosaic", "data.mixup"},
                 "0",
                 "more than 0, data.mixup, train.schedule: yolox or train.box_l1"});
  all.push_back({"data.rand_augment_magnitude", data.rand_augment > 0, {"data.rand_augment"}, "0", "more than 0"});
  add_optimizer(all, recipe.train, "train");
  add_optimizer(all, recipe.qat, "qat");
  for (const char* key : {"train.box_l1", "qat.box_l1"})
    all.push_back(
        {key, data.labels == Labels::boxes, {"data.labels"}, std::string(name_in(kLabels, data.labels)), "boxes"});
  add_calibrate(all, recipe.calibrate);
  add_observers(all, recipe.quant);
  if (data.labels == Labels::boxes)
    for (const char* key : {"qat.distill_temperature", "train.label_smoothing", "qat.label_smoothing"})
      all.push_back({key, false, {"data.labels"}, "boxes", "image"});
  all.push_back({"qat.distill_temperature", recipe.qat.distill_weight > 0, {"qat.distill_weight"}, "0", "more than 0"});
  all.push_back({"qat.forward", recipe.qat.freeze_batch_norm != 1, {"qat.freeze_batch_norm"}, "1", "less than 1"});
  all.push_back({"parallel.micro_batches", !recipe.parallel.stages.empty(), {"parallel.stages"}, "[]", "stages"});
  return all;
}

bool has_default(const Recipe& recipe, const std::string& key) {
  const auto& fields = schema();
  const auto field = std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.key == key; });
  return value_text(*field, recipe) == value_text(*field, Recipe());
}

}  // namespace

void check_unused(const Checks& checks) {
  const std::set<std::string>& overrides = checks.given.overrides;
  for (const Dependent& d : dependents(checks.recipe)) {
    const bool switched = std::any_of(d.switches.begin(), d.switches.end(),
                                      [&](const std::string& key) { return overrides.contains(key); });
    const bool given = overrides.contains(d.key) || (checks.given.file.contains(d.key) && !switched);
    checks.require(
        d.read || !given || has_default(checks.recipe, d.key), d.key,
        fmt::format("means nothing with {} {}; set {}, or leave it out", d.switches.front(), d.value, d.cure));
  }
}

}  // namespace octet
