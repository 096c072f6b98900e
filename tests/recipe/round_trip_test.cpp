// SPDX-License-Identifier: Apache-2.0
// What is written is what was read: same struct, same text, same hash; and the values that follow from data.format.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/recipe/schema.h"

namespace octet {
namespace {

const std::string kMinimal = "data:\n  format: cifar10\n  path: x\nmodel:\n  name: resnet20\n";

void expect_round_trip(const Recipe& recipe) {
  const std::string text = write_recipe(recipe);
  const Recipe again = parse_recipe(text, "again.yaml");
  EXPECT_EQ(again, recipe) << text;
  EXPECT_EQ(write_recipe(again), text);
  EXPECT_EQ(recipe_hash(again), recipe_hash(recipe));
}

/// A random value that the field's own rule allows.
std::string random_value(const Field& field, std::mt19937_64& random) {
  const Rule& rule = field.rule;
  const std::string type = type_name(field);
  const bool list = type.rfind("list", 0) == 0;
  std::string value;
  if (!rule.choices.empty()) {
    value = rule.choices[random() % rule.choices.size()];
  } else if (type == "true or false") {
    value = random() % 2 ? "true" : "false";
  } else if (type == "text") {
    static const char* kTexts[] = {"plain", "with space", "q\"uo\\te", "Zoë: #1", "- x",
                                   "null",  "true",       "~",         "[a]",     ""};
    value = kTexts[random() % std::size(kTexts)];
  } else {
    const double high = std::min(rule.maximum, 1e6), u = std::uniform_real_distribution<double>(0.001, 0.999)(random);
    const double number = rule.minimum + u * (high - rule.minimum);
    const bool whole = type.find("integer") != std::string::npos;
    value = whole ? fmt::format("{}", static_cast<long>(number) + 1) : fmt::format("{}", number);
  }
  return field.key + "=" + (list ? "[" + value + "]" : value);
}

/// Returns the override, and before it those without which its key would mean nothing.
std::vector<std::string> with_use(const std::string& key, const std::string& override_text) {
  const std::string observed = "quant.scales=observed", trains = "qat.epochs=1";
  const std::map<std::string, std::vector<std::string>> uses = {
      {"calibrate.percentile", {"calibrate.method=percentile"}},
      {"calibrate.rounding_steps", {"calibrate.rounding=adaround"}},
      {"calibrate.rounding_learning_rate", {"calibrate.rounding=block"}},
      {"calibrate.repair_images", {"calibrate.bias_correction=true"}},
      {"calibrate.distill_learning_rate", {"calibrate.distill_steps=1"}},
      {"calibrate.distill_temperature", {"calibrate.distill_steps=1"}},
      {"data.crop_area_min", {"data.random_resized_crop=true"}},
      {"data.synthetic_size", {"data.format=synthetic"}},
      {"data.synthetic_classes", {"data.format=synthetic"}},
      {"train.milestones", {"train.schedule=step"}},
      {"train.gamma", {"train.schedule=step", "train.milestones=[1]"}},
      {"train.beta1", {"train.optimizer=adamw"}},
      {"train.beta2", {"train.optimizer=adamw"}},
      {"quant.observer", {trains, observed}},
      {"quant.averaging", {trains, observed}},
      {"qat.freeze_observers", {trains, observed}},
      {"qat.milestones", {"qat.schedule=step"}},
      {"qat.gamma", {"qat.schedule=step", "qat.milestones=[1]"}},
      {"qat.beta1", {"qat.optimizer=adamw"}},
      {"qat.beta2", {"qat.optimizer=adamw"}},
      {"qat.distill_temperature", {trains, "qat.distill_weight=0.5"}},
      {"parallel.micro_batches", {"parallel.stages=[conv1]"}},
  };
  const auto use = uses.find(key);
  std::vector<std::string> overrides = use == uses.end() ? std::vector<std::string>() : use->second;
  overrides.push_back(override_text);
  return overrides;
}

TEST(RoundTrip, RandomRecipes) {
  std::mt19937_64 random(7);
  const Recipe minimal = parse_recipe(kMinimal, "r.yaml");
  int accepted = 0;
  for (int i = 0; i < 3000; ++i) {
    const Field& field = schema()[random() % schema().size()];
    if (type_name(field) == "list of nodes" || type_name(field) == "list of layers") continue;
    const std::string override_text = random_value(field, random);
    try {
      const Recipe recipe = parse_recipe(kMinimal, "r.yaml", with_use(field.key, override_text));
      expect_round_trip(recipe);
      EXPECT_EQ(hash_of_changes(recipe) == hash_of_changes(minimal), recipe == minimal) << override_text;
      ++accepted;
    } catch (const Error& error) {  // keys that do not fit each other
      EXPECT_NE(std::string(error.what()).find("--set"), std::string::npos) << error.what();
    }
  }
  EXPECT_GT(accepted, 2000);
}

TEST(RoundTrip, NumbersKeepEveryBit) {
  Recipe recipe = parse_recipe(kMinimal, "r.yaml");
  recipe.seed = 0xFFFFFFFFFFFFFFFFull;
  recipe.train.learning_rate = 0.1 + 0.2;
  recipe.train.weight_decay = 5e-324;
  recipe.train.clip_gradient = 1.7976931348623157e308;
  recipe.data.mean = {1.0 / 3, 0.1, 0.0};
  expect_round_trip(recipe);
}

TEST(RoundTrip, ANumberThatMayBeAuto) {
  const auto with = [](const std::string& value) {
    return parse_recipe(kMinimal, "r.yaml", {"qat.epochs=1", "qat.freeze_batch_norm=" + value});
  };
  EXPECT_EQ(with("0.25").qat.freeze_batch_norm, 0.25);
  EXPECT_EQ(with("0").qat.freeze_batch_norm, 0);
  EXPECT_FALSE(with("auto").qat.freeze_batch_norm);
  for (const char* value : {"0.25", "0", "auto"}) expect_round_trip(with(value));
  for (const char* wrong : {"half", "1.5", "[auto]"}) {
    try {
      with(wrong);
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("allowed: auto, 0 .. 1"), std::string::npos) << error.what();
    }
  }
}

TEST(RoundTrip, Graph) {
  const Recipe recipe = parse_recipe(
      "data: {format: fashion_mnist}\nmodel:\n  name: graph\n  graph:\n"
      "    - {name: conv1, op: conv2d, out_channels: 16, kernel: 3, pad: 1, bias: true}\n"
      "    - {name: drop, op: dropout, dropout: 0.25}\n"
      "    - {name: sum, op: add, inputs: [conv1, drop]}\n",
      "r.yaml");
  ASSERT_EQ(recipe.model.graph.size(), 3u);
  EXPECT_EQ(recipe.model.graph[0].attributes,
            (std::map<std::string, double>{{"out_channels", 16}, {"kernel", 3}, {"pad", 1}, {"bias", 1}}));
  EXPECT_EQ(recipe.model.graph[2].inputs, (std::vector<std::string>{"conv1", "drop"}));
  expect_round_trip(recipe);
}

TEST(RoundTrip, Layers) {
  const Recipe recipe =
      parse_recipe(kMinimal + "quant:\n  layers:\n    - {match: \"layer4.*\", weight_bits: 4, activation_bits: 8}\n" +
                       "    - {match: conv1, weight_bits: 2}\n    - {match: \"*?\", activation_bits: 3}\n",
                   "r.yaml");
  EXPECT_EQ(recipe.quant.layers, (std::vector<LayerBits>{{"layer4.*", 4, 8}, {"conv1", 2, 0}, {"*?", 0, 3}}));
  expect_round_trip(recipe);
  EXPECT_EQ(parse_recipe(kMinimal, "r.yaml", {"quant.layers=[{match: \"layer1.*\", weight_bits: 3}]"}).quant.layers,
            (std::vector<LayerBits>{{"layer1.*", 3, 0}}));
}

TEST(RoundTrip, HashFollowsEveryKey) {
  const Recipe recipe = parse_recipe(kMinimal, "r.yaml");
  EXPECT_EQ(recipe_hash(recipe).size(), 64u);
  EXPECT_NE(recipe_hash(recipe), recipe_hash(parse_recipe(kMinimal, "r.yaml", {"qat.weight_decay=0.2"})));
  Recipe first;  // with the defaults of octets whose states are still resumed, which a new default does not change
  first.train.learning_rate = 0.1;
  first.calibrate.method = CalibrationMethod::mse;
  first.quant.scales = EdgeScales::fixed;
  first.qat.freeze_batch_norm = 0.5;
  EXPECT_EQ(hash_of_changes(first), sha256(""));  // so keys that a later octet has more do not change it
}

TEST(Resolved, ValuesOfTheFormat) {
  const Recipe grey = parse_recipe("data: {format: fashion_mnist}\nmodel: {name: small_cnn}", "r.yaml");
  EXPECT_EQ(grey.data.path, "/usr/share/datasets/fashion-mnist");
  EXPECT_EQ(grey.data.channels, 1);
  EXPECT_EQ(grey.data.image_size, 28);
  EXPECT_EQ(grey.data.mean, std::vector<double>{0.2860});
  const Recipe folder = parse_recipe("data: {format: image_folder, path: x}\nmodel: {name: resnet50}", "r.yaml");
  EXPECT_EQ(folder.data.image_size, 224);
  EXPECT_EQ(folder.data.std, (std::vector<double>{0.229, 0.224, 0.225}));
  const Recipe own = parse_recipe(kMinimal, "r.yaml", {"data.mean=[0, 0, 0]", "data.std=[1, 1, 1]"});
  EXPECT_EQ(own.data.mean, (std::vector<double>{0, 0, 0}));
}

/// A user of photos expects them upright; a run that an octet without the key began goes on as it did.
TEST(Resolved, OrientationFollowsTheFormatAndOlderRunsKeepTheirs) {
  const std::string folder = "data: {format: image_folder, path: x}\nmodel: {name: resnet50}";
  EXPECT_EQ(parse_recipe(folder, "r.yaml").data.orientation, Orientation::exif);
  EXPECT_EQ(parse_recipe(folder, "r.yaml", {"data.orientation=as_stored"}).data.orientation, Orientation::as_stored);
  EXPECT_EQ(parse_recipe(kMinimal, "r.yaml").data.orientation, Orientation::as_stored);
  EXPECT_EQ(parse_recipe(kMinimal, "r.yaml", {"data.orientation=exif"}).data.orientation, Orientation::exif);
  EXPECT_THROW(parse_recipe(folder, "r.yaml", {"data.orientation=upright"}), Error);

  const std::string path = ::testing::TempDir() + "octet_older_run_" + std::to_string(::getpid()) + ".yaml";
  std::string text = write_recipe(parse_recipe(folder, "r.yaml"));
  write_file_atomically(path, text);
  EXPECT_EQ(read_run_recipe(path).data.orientation, Orientation::exif);
  const std::string line = "  orientation: exif\n";
  ASSERT_NE(text.find(line), std::string::npos);
  text.erase(text.find(line), line.size());
  write_file_atomically(path, text);
  EXPECT_EQ(read_run_recipe(path).data.orientation, Orientation::as_stored);
  EXPECT_EQ(read_run_recipe(path, {"data.orientation=exif"}).data.orientation, Orientation::exif);
  EXPECT_EQ(read_recipe(path).data.orientation, Orientation::exif);
  std::filesystem::remove(path);
}

/// Some editors write one, and it is not part of the first key.
TEST(Resolved, AByteOrderMarkBeforeTheRecipe) {
  EXPECT_EQ(parse_recipe("\xEF\xBB\xBF" + kMinimal, "r.yaml"), parse_recipe(kMinimal, "r.yaml"));
}

}  // namespace
}  // namespace octet
