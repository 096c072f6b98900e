// SPDX-License-Identifier: Apache-2.0
// A key that means nothing beside another is refused where the user set it (src/recipe/unused_keys.cpp).
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/recipe/refusal.h"

namespace octet {
namespace {

struct Unused {
  std::string key;  ///< with a value
  std::string refusal;
  std::string use;  ///< what gives it a meaning, or ""
};

const std::vector<Unused> kUnused = {
    {"calibrate.percentile=99.9", "calibrate.method auto; set percentile", "calibrate.method=percentile"},
    {"calibrate.rounding_steps=50", "calibrate.rounding nearest; set adaround or block", "calibrate.rounding=adaround"},
    {"calibrate.rounding_learning_rate=0.02", "calibrate.rounding nearest; set adaround", "calibrate.rounding=block"},
    {"calibrate.repair_images=64", "calibrate.rounding nearest; set adaround", "calibrate.bias_correction=true"},
    {"calibrate.distill_learning_rate=0.01", "calibrate.distill_steps 0; set more than", "calibrate.distill_steps=1"},
    {"calibrate.distill_temperature=2", "calibrate.distill_steps 0; set more than 0", "calibrate.distill_steps=1"},
    {"train.milestones=[1]", "train.schedule cosine; set step", "train.schedule=step"},
    {"qat.gamma=0.2", "qat.schedule cosine; set step", ""},
    {"train.beta1=0.8", "train.optimizer sgd; set adamw", "train.optimizer=adamw"},
    {"qat.beta2=0.9", "qat.optimizer sgd; set adamw", "qat.optimizer=adamw"},
    {"quant.observer=minmax", "quant.scales auto; set observed", "quant.scales=observed"},
    {"quant.averaging=0.1", "quant.scales auto; set observed", "quant.scales=observed"},
    {"qat.freeze_observers=0.5", "quant.scales auto; set observed", "quant.scales=observed"},
    {"qat.distill_temperature=2", "qat.distill_weight 0; set more than 0", "qat.distill_weight=0.5"},
    {"data.crop_area_min=0.5", "data.random_resized_crop false; set true", "data.random_resized_crop=true"},
    {"data.synthetic_size=100", "data.format cifar10; set synthetic", "data.format=synthetic"},
    {"data.synthetic_classes=4", "data.format cifar10; set synthetic", "data.format=synthetic"},
    {"parallel.micro_batches=4", "parallel.stages []; set stages", "parallel.stages=[conv1]"},
};

/// Returns the recipe's text with "section.key=value" in it. `text` has none of that section.
std::string with_key(const std::string& text, const std::string& key) {
  const size_t dot = key.find('.'), equals = key.find('=');
  const std::string section = key.substr(0, dot);
  const std::string line = "  " + key.substr(dot + 1, equals - dot - 1) + ": " + key.substr(equals + 1) + "\n";
  const size_t at = text.find(section + ":\n");
  if (at == std::string::npos) return text + section + ":\n" + line;
  return std::string(text).insert(at + section.size() + 2, line);
}

TEST(RecipeErrors, AKeyThatMeansNothingBesideAnotherIsRefusedWhereTheUserSetIt) {
  for (const Unused& unused : kUnused) {
    const std::string name = unused.key.substr(0, unused.key.find('='));
    const std::string message = ": " + name + ": means nothing with " + unused.refusal;
    expect_parts(refusal(kMinimal, {unused.key}), {"--set '" + unused.key + "'" + message, ", or leave it out"});
    expect_parts(refusal(with_key(kMinimal, unused.key)), {"r.yaml:", message});
  }
}

TEST(RecipeErrors, AKeyIsNotRefusedWhereItIsReadOrHasItsDefault) {
  for (const Unused& unused : kUnused) {
    if (unused.use.empty()) continue;  // step needs milestones, too
    SCOPED_TRACE(unused.key);
    const std::vector<std::string> overrides = {unused.key, unused.use, "qat.epochs=1"};
    const std::vector<std::string> after_training = {unused.key, unused.use};
    const bool repairs = unused.key.rfind("calibrate.", 0) == 0;
    EXPECT_NO_THROW(parse_recipe(kMinimal, "r.yaml", repairs ? after_training : overrides));
  }
  EXPECT_NO_THROW(parse_recipe(kMinimal, "r.yaml", {"calibrate.percentile=99.99", "calibrate.rounding_steps=10000"}));
  expect_parts(refusal(kMinimal, {"qat.gamma=0.2", "qat.schedule=one_cycle"}), {"qat.schedule one_cycle; set step"});
  expect_parts(refusal(kMinimal, {"train.momentum=0.8", "train.optimizer=adamw"}), {"train.optimizer adamw; set sgd"});
  expect_parts(refusal(kMinimal, {"qat.nesterov=false", "qat.optimizer=adamw"}), {"qat.optimizer adamw; set sgd"});
  expect_parts(
      refusal(kMinimal, {"qat.epochs=1", "quant.scales=observed", "quant.observer=minmax", "quant.averaging=0.1"}),
      {"quant.averaging: means nothing with quant.observer minmax; set moving_average"});
}

TEST(RecipeErrors, MosaicsNeedAPhaseThatIsLongerThanItsEndWithoutThem) {
  const std::string text =
      "data: {format: yolo, path: x, mosaic: 0.5}\nmodel: {name: small_cnn}\ntrain: {epochs: 15}\n";
  expect_parts(refusal(text),
               {"r.yaml:1:", ": data.mosaic: means nothing with data.mosaic_off 15 and at most 15 epochs",
                "set data.mosaic_off below them"});
  for (const char* cure : {"qat.epochs=16", "data.mosaic_off=14", "train.epochs=2", "train.epochs=0"})
    EXPECT_EQ(parse_recipe(text, "r.yaml", {cure}).data.mosaic, 0.5) << cure;
  expect_parts(refusal(text, {"train.epochs=2", "data.mosaic=1"}), {"at most 2 epochs"});
}

TEST(RecipeErrors, WhatACommandSwitchesOffKeepsItsKeysInTheFile) {
  const std::string text = kMinimal + "calibrate:\n  rounding: block\n  rounding_steps: 50\n";
  EXPECT_EQ(parse_recipe(text, "r.yaml", {"calibrate.rounding=nearest"}).calibrate.rounding_steps, 50);
  expect_parts(refusal(text, {"calibrate.rounding=nearest", "calibrate.rounding_steps=60"}),
               {"--set 'calibrate.rounding_steps=60': calibrate.rounding_steps: means nothing"});
}

/// A recipe that octet wrote has every key, whoever set them.
TEST(RecipeErrors, KeysOfAWrittenRecipeAreNotTheUsers) {
  Recipe recipe = parse_recipe(kMinimal, "r.yaml");
  recipe.calibrate.percentile = 99.9;
  const std::string text = write_recipe(recipe);
  EXPECT_EQ(parse_recipe(text, "written.yaml"), recipe);
  expect_parts(refusal(text, {"calibrate.percentile=99"}), {"--set 'calibrate.percentile=99'", "means nothing with"});
  // That of an older octet lacks a key; as a run's it is read as it was, as a user's it is not.
  const std::string line = "  rounding_drop: 0\n";
  ASSERT_NE(text.find(line), std::string::npos);
  const std::string older = std::string(text).erase(text.find(line), line.size());
  const std::string path = ::testing::TempDir() + "octet_unused_key_" + std::to_string(::getpid()) + ".yaml";
  std::ofstream(path) << older;
  EXPECT_EQ(read_run_recipe(path), recipe);
  EXPECT_THROW(read_recipe(path), Error);
  EXPECT_THROW(read_run_recipe(path, {"calibrate.percentile=99"}), Error);
  std::filesystem::remove(path);
}

/// Keys that octet had once: what octet wrote while they were not used is read as before, and what uses one is refused,
/// as is every one that a user writes.
TEST(RecipeErrors, KeysThatWereRemoved) {
  const Recipe recipe = parse_recipe(kMinimal, "r.yaml");
  const auto older = [&](const std::string& decay, const std::string& freeze) {
    std::string text = write_recipe(recipe);
    const std::string next = "  distill_weight: 0\n";
    EXPECT_NE(text.find(next), std::string::npos);
    return text.insert(text.find(next), "  pact_decay: " + decay + "\n  freeze_oscillating: " + freeze +
                                            "\n  freeze_oscillating_start: 0\n  reestimate_batch_norm: 0\n");
  };
  EXPECT_EQ(parse_recipe(older("0.0002", "0"), "written.yaml"), recipe);
  expect_parts(refusal(older("0.001", "0")), {"qat.pact_decay: unknown key", "allowed: epochs"});
  expect_parts(refusal(older("0.0002", "0.01")), {"qat.freeze_oscillating: unknown key", "allowed: epochs"});

  const std::string path = ::testing::TempDir() + "octet_removed_key_" + std::to_string(::getpid()) + ".yaml";
  std::string text = older("0.0002", "0");
  const std::string line = "  rounding_drop: 0\n";  // of a still older octet
  std::ofstream(path) << text.erase(text.find(line), line.size());
  EXPECT_EQ(read_run_recipe(path), recipe);
  EXPECT_THROW(read_recipe(path), Error);
  std::ofstream(path) << older("0.0002", "0.01");
  EXPECT_THROW(read_run_recipe(path), Error);
  std::filesystem::remove(path);

  expect_parts(refusal(kMinimal + "\nqat: {freeze_oscillating: 0}"), {"qat.freeze_oscillating: unknown key"});
  expect_parts(refusal(kMinimal + "\nqat: {reestimate_batch_norm: 64}"), {"qat.reestimate_batch_norm: unknown key"});
  expect_parts(refusal(kMinimal + "\nqat: {pact_decay: 0.0002}"), {"qat.pact_decay: unknown key"});
  expect_parts(refusal(kMinimal, {"qat.freeze_oscillating=0"}), {"--set", "qat.freeze_oscillating: unknown key"});
  expect_parts(refusal(kMinimal + "\nquant: {scales: pact}"),
               {"quant.scales: ", "'pact'", "allowed: auto, fixed, observed, lsq, lsq_plus"});
}

}  // namespace
}  // namespace octet
