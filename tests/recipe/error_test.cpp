// SPDX-License-Identifier: Apache-2.0
// Wrong recipes: the message names file, line, column, key, the nearest valid key and what is allowed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "src/base/error.h"
#include "src/recipe/schema.h"
#include "tests/recipe/refusal.h"

namespace octet {
namespace {

TEST(RecipeErrors, UnknownKeyNamesPlaceAndNearest) {
  expect_parts(refusal(kMinimal + "quant:\n  activaton: affine_u8\n"),
               {"r.yaml:7:3: quant.activaton: unknown key; did you mean 'activation'? allowed:", "weight_bits"});
  expect_parts(refusal(kMinimal + "quantt:\n  activation: affine_u8\n"),
               {"r.yaml:6:1: quantt: unknown key; did you mean 'quant'?", "calibrate", "seed"});
  expect_parts(refusal(kMinimal + "data.pad: 3\n"), {"r.yaml:6:1: data.pad: unknown key"});
}

TEST(RecipeErrors, UnknownValueNamesNearest) {
  expect_parts(refusal(kMinimal + "quant: {activation: afine_u8}\n"),
               {"r.yaml:6:21: quant.activation: unknown value 'afine_u8'; did you mean 'affine_u8'?", "symmetric_s8"});
}

TEST(RecipeErrors, LabelsOfPixelsAreNamedWhereTheyDoNotFit) {
  expect_parts(refusal(kMinimal, {"data.labels=pixels"}),
               {"data.labels: pixels, but cifar10 has a class for each image", "data.format image_folder"});
  const std::string scenes = "data: {format: synthetic, labels: pixels, synthetic_classes: 2}\nmodel: {name: unet}\n";
  EXPECT_EQ(parse_recipe(scenes, "r.yaml").data.labels, Labels::pixels);
  expect_parts(refusal(scenes, {"data.synthetic_classes=10"}),
               {"data.synthetic_classes: 10; with data.labels: pixels"});
  expect_parts(refusal(scenes, {"data.image_width=64"}),
               {"data.image_width: 64, but data.format synthetic has square"});
  const std::string folder =
      "data: {format: image_folder, labels: pixels, path: a, image_size: 32, image_width: 48, class_names: [x, y]}\n"
      "model: {name: unet}\n";
  const Recipe recipe = parse_recipe(folder, "r.yaml");
  EXPECT_EQ(recipe.data.width(), 48);
  EXPECT_EQ(parse_recipe(write_recipe(parse_recipe(kMinimal, "r.yaml")), "r.yaml", {"data.image_size=16"}).data.width(),
            16);
  EXPECT_EQ(recipe.data.ignore_index, 255);
  expect_parts(refusal(folder, {"data.class_names=[]"}), {"data.class_names: needed with data.labels: pixels"});
  expect_parts(refusal(folder, {"data.classes=c.txt"}), {"data.class_names: only for", "without data.classes"});
  expect_parts(refusal(folder, {"data.cutout=32"}), {"data.cutout: 32 is not below data.image_size 32"});
  expect_parts(refusal(folder, {"data.resize=40"}), {"data.resize: 40 is below data.image_size 48"});
  expect_parts(refusal(kMinimal, {"data.ignore_index=3"}), {"data.ignore_index", "pixels"});
  expect_parts(refusal(kMinimal, {"model.new_layers=[fc]"}), {"model.new_layers", "model.weights"});
  expect_parts(refusal(scenes, {"data.labels=pixel"}), {"unknown value 'pixel'; did you mean 'pixels'?"});
}

TEST(RecipeErrors, DecodingByTheGpuIsNamedWhereItDoesNotFit) {
  const std::string folder =
      "data: {format: image_folder, path: x, image_size: 64, decode: gpu}\nmodel: {name: resnet18}\n";
  EXPECT_EQ(parse_recipe(folder, "r.yaml").data.decode, Decoding::gpu);
  EXPECT_EQ(parse_recipe(kMinimal, "r.yaml").data.decode, Decoding::cpu);
  expect_parts(refusal(kMinimal, {"data.decode=gpu"}), {"data.decode: gpu decodes files, of image_folder, coco, voc"});
  expect_parts(refusal(folder, {"data.decode=gpus"}), {"unknown value 'gpus'; did you mean 'gpu'?"});
  EXPECT_EQ(parse_recipe(folder, "r.yaml", {"data.fit=stretch"}).data.fit, Fit::stretch);
  for (const char* key : {"color_jitter=[0.1, 0, 0, 0]", "rand_augment=1", "mixup_alpha=1"})
    expect_parts(refusal(folder, {std::string("data.") + key}), {"data.decode: gpu, but data.color_jitter"});
  EXPECT_EQ(parse_recipe(folder, "r.yaml", {"data.random_erasing=0.2", "data.cutout=8"}).data.decode, Decoding::gpu);
}

TEST(RecipeErrors, AugmentationIsNamedWhereItDoesNotFit) {
  const Recipe recipe =
      parse_recipe(kMinimal, "r.yaml", {"data.color_jitter=[0.4, 0.4, 0.4, 0.1]", "data.mixup_alpha=0.2"});
  EXPECT_EQ(recipe.data.color_jitter, (std::vector<double>{0.4, 0.4, 0.4, 0.1}));
  expect_parts(refusal(kMinimal, {"data.color_jitter=[0.4, 0.4]"}),
               {"data.color_jitter: 2 values; brightness, contrast, saturation and hue are four"});
  expect_parts(refusal(kMinimal, {"data.color_jitter=[0.4, 0.4, 0.4, 0.6]"}),
               {"data.color_jitter: a hue of more than"});
  const std::string pixels = "data: {format: synthetic, labels: pixels, synthetic_classes: 2}\nmodel: {name: unet}\n";
  EXPECT_EQ(parse_recipe(pixels, "r.yaml", {"data.random_erasing=0.3"}).data.random_erasing, 0.3);
  expect_parts(refusal(pixels, {"data.rand_augment=2"}),
               {"data.rand_augment: moves images without their labels, but data.labels is pixels"});
  expect_parts(refusal(pixels, {"data.mixup_alpha=1"}), {"data.mixup_alpha: mixes the classes of two images"});
  const std::string boxes = "data: {format: voc, path: x}\nmodel: {name: yolox_nano}\n";
  EXPECT_EQ(parse_recipe(boxes, "r.yaml").data.labels, Labels::boxes);
  EXPECT_EQ(parse_recipe(boxes, "r.yaml").data.fit, Fit::letterbox_corner);
  EXPECT_TRUE(parse_recipe(boxes, "r.yaml", {"data.random_resized_crop=true"}).data.random_resized_crop);
  expect_parts(refusal(boxes, {"data.random_resized_crop=true", "data.mosaic=0.5"}),
               {"data.random_resized_crop: takes no parts of the images that a mosaic (data.mosaic) joins"});
  EXPECT_TRUE(parse_recipe(boxes, "r.yaml", {"data.leave_out_faults=true"}).data.leave_out_faults);
  for (const char* key : {"color_jitter=[0.1, 0, 0, 0]", "random_erasing=0.1", "rand_augment=1", "mixup_alpha=1"})
    expect_parts(refusal(boxes, {std::string("data.") + key}), {"is for data.fit: crop, which is letterbox_corner"});
  expect_parts(refusal(kMinimal, {"data.leave_out_faults=true"}),
               {"data.leave_out_faults: means nothing with data.format cifar10; set coco, voc or yolo"});
  expect_parts(refusal(kMinimal, {"train.box_l1=true"}), {"train.box_l1: means nothing with data.labels image"});
  expect_parts(refusal(kMinimal, {"train.ema_ramp=2000"}), {"train.ema_ramp: means nothing with train.ema 0"});
  EXPECT_EQ(parse_recipe(kMinimal, "r.yaml", {"train.schedule=yolox", "data.mosaic_off=2"}).data.mosaic_off, 2);
}

TEST(RecipeErrors, WrongTypeAndRange) {
  expect_parts(refusal(kMinimal + "train:\n  epochs: many\n"),
               {"r.yaml:7:11: train.epochs: is 'many', not of type 'integer'; allowed: 0 .. 100000"});
  expect_parts(refusal(kMinimal + "train:\n  epochs: 1.5\n"), {"train.epochs: is '1.5', not of type 'integer'"});
  expect_parts(refusal(kMinimal + "train:\n  epochs: \"5\"\n"), {"'5' (quoted), not of type 'integer'"});
  expect_parts(refusal(kMinimal + "train:\n  epochs: -1\n"), {"r.yaml:7:11: train.epochs: -1 is out of range"});
  expect_parts(refusal(kMinimal + "train:\n  val_interval: 0\n"), {"train.val_interval: 0 is out of range"});
  expect_parts(refusal(kMinimal + "train:\n  epochs: 99999999999999999999\n"), {"train.epochs:", "is out of range"});
  expect_parts(refusal(kMinimal + "train:\n  learning_rate: .nan\n"), {"not of type 'number'; allowed: 0 .. 1000"});
  expect_parts(refusal(kMinimal + "train:\n  learning_rate: nan\n"), {"not of type 'number'"});
  expect_parts(refusal(kMinimal + "train:\n  learning_rate: 1e999\n"), {"train.learning_rate"});
  expect_parts(refusal(kMinimal + "train:\n  nesterov: yes\n"), {"'yes', not of type 'true or false'"});
  expect_parts(refusal(kMinimal + "train:\n  milestones: 5\n"), {"not of type 'list of integers'"});
  expect_parts(refusal(kMinimal + "train:\n  milestones: [5, x]\n"), {"r.yaml:7:19: train.milestones"});
  expect_parts(refusal(kMinimal + "train: 5\n"), {"r.yaml:6:1: train: is a section"});
  expect_parts(refusal(kMinimal + "train:\n  epochs:\n"), {"train.epochs: is nothing"});
  expect_parts(refusal("[1, 2]"), {"r.yaml:1:1: a recipe is a map"});
}

TEST(RecipeErrors, BitsOfSingleLayers) {
  const std::string quant = kMinimal + "quant:\n  layers:\n    - ";
  expect_parts(refusal(kMinimal + "quant:\n  layers: {match: conv1, weight_bits: 4}\n"), {"quant.layers: is a map"});
  expect_parts(refusal(quant + "conv1\n"), {"r.yaml:8:7: quant.layers: an entry is a map {match, weight_bits"});
  expect_parts(refusal(quant + "{match: conv1}\n"),
               {"r.yaml:8:7: quant.layers: an entry needs match, and weight_bits"});
  expect_parts(refusal(quant + "{weight_bits: 3, activation_bits: 3}\n"), {"an entry needs match"});
  expect_parts(refusal(quant + "{match: \"\", weight_bits: 3}\n"), {"an entry needs match"});
  expect_parts(refusal(quant + "{match: conv1, weight_bits: 9}\n"), {"r.yaml:8:35: quant.layers: 9 is out of range"});
  expect_parts(refusal(quant + "{match: conv1, weight_bits: 0}\n"),
               {"quant.layers: 0 is out of range; allowed: 2 .. 8"});
  expect_parts(
      refusal(quant + "{match: conv1, weight_bit: 4}\n"),
      {"quant.layers.weight_bit: unknown key; did you mean 'weight_bits'?", "match, weight_bits, activation_bits"});
  expect_parts(refusal(quant + "{match: conv1, weight_bits: 4, weight_bits: 4}\n"), {"'weight_bits' is given twice"});
  expect_parts(refusal(kMinimal, {"quant.residual_bits=1"}), {"quant.residual_bits: 1; allowed: 0, 2 .. 8"});
}

TEST(RecipeErrors, DuplicateAndMissingKeys) {
  expect_parts(refusal(kMinimal + "train:\n  epochs: 1\n  epochs: 2\n"), {"r.yaml:8:3: train.epochs: given twice"});
  expect_parts(refusal(kMinimal + "data:\n  pad: 1\n"), {"r.yaml:6:1: data: given twice"});
  expect_parts(refusal(""), {"r.yaml: data.format: missing; allowed: fashion_mnist"});
  expect_parts(refusal("data: {format: fashion_mnist}"), {"r.yaml: model.name: missing"});
}

TEST(RecipeErrors, OverridesAreCheckedLikeTheFile) {
  expect_parts(refusal(kMinimal, {"quant.activaton=affine_u8"}),
               {"--set 'quant.activaton=affine_u8': quant.activaton: unknown key; did you mean 'activation'?"});
  expect_parts(refusal(kMinimal, {"qant.activation=affine_u8"}), {"qant: unknown key; did you mean 'quant'?"});
  expect_parts(refusal(kMinimal, {"train.epochs=two"}), {"--set 'train.epochs=two'", "not of type 'integer'"});
  expect_parts(refusal(kMinimal, {"train.epochs"}), {"needs the form key.path=value"});
  expect_parts(refusal(kMinimal, {"sed=3"}), {"sed: unknown key; did you mean 'seed'?"});
  expect_parts(refusal(kMinimal, {"data.path=a\nb"}), {"data.path"});
  const Recipe recipe =
      parse_recipe(kMinimal, "r.yaml", {"train.epochs=7", "data.path=/a: b", "data.mean=[0, 0.5, 1]"});
  EXPECT_EQ(recipe.train.epochs, 7);
  EXPECT_EQ(recipe.data.path, "/a: b");
  EXPECT_EQ(recipe.data.mean, (std::vector<double>{0, 0.5, 1}));
}

TEST(RecipeErrors, KeysThatDoNotFitEachOther) {
  const auto with = [](const std::string& override_text) { return refusal(kMinimal, {override_text}); };
  expect_parts(with("data.mean=[0.5]"), {"data.mean: has 1 values, but data.channels is 3"});
  expect_parts(with("data.channels=1"), {"data.channels: is 1, but images of cifar10 have 3"});
  expect_parts(with("data.cutout=32"), {"data.cutout: 32 is not below data.image_size 32"});
  expect_parts(with("data.pad=32"), {"data.pad: 32 is not below data.image_size 32"});
  EXPECT_EQ(parse_recipe(kMinimal, "r.yaml", {"data.pad=31", "data.cutout=31"}).data.pad, 31);
  expect_parts(with("data.image_size=64"), {"data.image_size: 64 is larger than the 32 pixels of cifar10"});
  expect_parts(with("data.resize=16"), {"data.resize: 16 is below data.image_size 32"});
  expect_parts(with("data.classes=c.txt"), {"data.classes: only for data.format image_folder"});
  expect_parts(with("data.path="), {"data.path: needed for data.format cifar10"});
  expect_parts(with("train.schedule=step"), {"train.schedule: step needs train.milestones"});
  expect_parts(with("qat.milestones=[5, 5]"), {"qat.milestones: must increase"});
  expect_parts(with("model.name=graph"), {"model.name: graph needs the nodes in model.graph"});
  expect_parts(with("model.name=onnx"), {"model.name: onnx needs the network's file in model.onnx"});
  expect_parts(with("model.onnx=net.onnx"), {"model.onnx: only for model.name onnx"});
  expect_parts(with("model.graph=[{name: a, op: relu}]"), {"model.graph: only for model.name graph"});
  expect_parts(with("qat.float_control=true"), {"qat.float_control: trains as long as QAT, but qat.epochs is 0"});
  expect_parts(refusal(kMinimal, {"qat.epochs=1", "qat.forward=int8", "quant.scales=lsq"}),
               {"'qat.forward=int8': qat.forward: int8 keeps codes", "but quant.scales is lsq"});
  expect_parts(with("evaluate.engines=[]"), {"evaluate.engines: names no engine", "[auto]"});
  expect_parts(with("evaluate.engines=[cpu, cpu]"), {"evaluate.engines: an engine is given twice"});
  expect_parts(with("evaluate.fallback=cuda"),
               {"evaluate.fallback: cuda is for engines cudnn and cutlass", "evaluate.engines"});
  expect_parts(with("export.file=../x.safetensors"), {"export.file"});
  expect_parts(with("export.file=x.bin"), {"export.file"});
  // The file's place is named when the file set the key.
  expect_parts(
      refusal(kMinimal + "train:\n  epochs: 2\n  warmup_epochs: 3\n"),
      {"r.yaml:8:3: train.warmup_epochs: 3 leaves nothing of train.epochs 2; set train.warmup_epochs below it"});
  expect_parts(refusal(kMinimal, {"qat.epochs=1", "qat.warmup_epochs=1"}),
               {"qat.warmup_epochs: 1 leaves nothing of qat.epochs 1"});
  expect_parts(refusal(kMinimal + "train:\n  epochs: 2\n", {"data.limit_train=100"}),
               {"data.limit_train: 100 is below"});
}

TEST(RecipeErrors, EachClassHasANameOfItsOwn) {
  const std::string folders = "data: {format: image_folder, path: x}\nmodel: {name: resnet20}\n";
  expect_parts(refusal(folders, {"data.class_names=[cat, dog, cat]"}),
               {"data.class_names: classes 0 and 2 are both called 'cat'; give each class a name of its own"});
  expect_parts(refusal(folders, {"data.class_names=[cat, '']"}), {"data.class_names: class 1 has no name"});
  EXPECT_EQ(parse_recipe(folders, "r.yaml", {"data.class_names=[cat, dog]"}).data.class_names.size(), 2u);
}

TEST(RecipeErrors, TestImagesAreForTheFinalFiguresAlone) {
  const auto with = [](const std::vector<std::string>& overrides) { return refusal(kMinimal, overrides); };
  expect_parts(with({"data.test=test", "data.validation=test"}),
               {"--set 'data.validation=test': data.validation: 'test' is data.test too", "leave data.validation out"});
  expect_parts(with({"data.test=test", "data.validation=train"}), {"data.validation: 'train' is data.train too"});
  expect_parts(with({"data.test=exam"}), {"data.test: 'exam'; allowed for cifar10: train, test"});
  expect_parts(with({"data.validation_fraction=0"}), {"data.validation_fraction: 0 leaves no image to choose on"});
  expect_parts(with({"data.test=train", "train.epochs=1"}), {"data.test: 'train' is data.train too", "post-training"});
  expect_parts(with({"data.test=train", "qat.epochs=1"}), {"data.test: 'train' is data.train too", "post-training"});
  EXPECT_TRUE(tests_on_training_images(parse_recipe(kMinimal, "r.yaml", {"data.test=train"}).data));

  const std::string folders =
      "data: {format: image_folder, path: x, validation: val, test: test/}\nmodel: {name: resnet20}\n";
  const Recipe recipe = parse_recipe(folders, "r.yaml");
  EXPECT_EQ(recipe.data.validation_fraction, 0);
  EXPECT_EQ(parse_recipe(write_recipe(recipe), "again.yaml"), recipe);
  expect_parts(refusal(folders, {"data.validation=test"}), {"data.validation: 'test' is data.test too"});
  EXPECT_EQ(parse_recipe(folders, "r.yaml", {"data.validation=test", "data.test_path=y.tar"}).data.validation, "test");
  EXPECT_FALSE(
      tests_on_training_images(parse_recipe(kMinimal, "r.yaml", {"data.test=train", "data.test_path=y"}).data));
  EXPECT_TRUE(
      tests_on_training_images(parse_recipe(kMinimal, "r.yaml", {"data.test=train", "data.test_path=x/"}).data));
  expect_parts(refusal("data: {format: synthetic, test_path: x}\nmodel: {name: resnet20}\n"),
               {"data.test_path: synthetic images lie nowhere"});
  expect_parts(refusal(folders, {"data.validation_fraction=0.1"}),
               {"data.validation_fraction: 0.1 of the training split, but data.validation names a split"});
}

/// The final figures were of data.validation; a finished run's recipe.yaml has both keys.
TEST(RecipeErrors, ARecipeOfAnOlderOctetIsRefusedWithTheCure) {
  const std::string old =
      "data:\n  format: cifar10\n  path: x\n  validation: test\n  validation_fraction: 0\nmodel:\n  name: resnet20\n";
  expect_parts(refusal(old), {"r.yaml:4:3: data.validation: given without data.test", "recipe.yaml",
                              "rename validation to test, and a validation_fraction of 0 to 0.02"});
  std::string cured = old;
  cured.replace(cured.find("validation: test"), 10, "test");
  cured.replace(cured.find("fraction: 0") + 10, 1, "0.02");
  const Recipe recipe = parse_recipe(cured, "r.yaml");
  EXPECT_EQ(recipe.data.test, "test");
  EXPECT_EQ(recipe.data.validation, "");
}

TEST(RecipeErrors, PeersAreRefusedWhereTheyCouldNotRunAfterTraining) {
  const std::string symmetric = "quant.activation=symmetric_s8", fallback = "evaluate.fallback=cuda";
  for (const std::string peer : {"cudnn", "cutlass"}) {
    const std::string recipe = kMinimal + "evaluate:\n  engines: [auto, " + peer + "]\n";
    expect_parts(refusal(recipe, {symmetric}),
                 {"r.yaml:7:3: evaluate.engines: " + peer + " cannot", "evaluate.fallback: cuda", "leave " + peer});
    for (const char* scheme : {"affine_u8", "unsigned_u8"}) {
      expect_parts(refusal(recipe, {fallback, std::string("quant.activation=") + scheme}),
                   {"r.yaml:7:3: evaluate.engines: " + peer + " convolves int8", scheme, "set symmetric_s8"});
    }
    EXPECT_EQ(parse_recipe(recipe, "r.yaml", {symmetric, fallback}).evaluate.fallback, "cuda");
  }
}

TEST(RecipeErrors, RepairsAreOfWhatIsNotTrained) {
  const std::string equalize = "calibrate.equalize=true", correct = "calibrate.bias_correction=true";
  expect_parts(refusal(kMinimal, {equalize, "qat.epochs=1"}),
               {": calibrate.equalize: repairs a network after training", "set qat.epochs: 0"});
  EXPECT_NO_THROW(parse_recipe(kMinimal, "r.yaml", {equalize, correct}));
  EXPECT_TRUE(parse_recipe(kMinimal, "r.yaml", {correct, "qat.epochs=1"}).calibrate.bias_correction);
  for (const std::string rounding : {"adaround", "block"}) {
    expect_parts(refusal(kMinimal, {"calibrate.rounding=" + rounding, "qat.epochs=1"}),
                 {": calibrate.rounding: " + rounding + " puts weights on their codes", "set qat.epochs: 0"});
  }
  const std::string drop = "calibrate.rounding_drop=0.5";
  for (const std::string rounding : {"nearest", "adaround"}) {
    expect_parts(refusal(kMinimal, {drop, "calibrate.rounding=" + rounding}),
                 {": calibrate.rounding_drop: drops quantization where blocks", "is " + rounding + "; set block"});
  }
  EXPECT_EQ(parse_recipe(kMinimal, "r.yaml", {drop, "calibrate.rounding=block"}).calibrate.rounding_drop, 0.5);
  const std::string steps = "calibrate.distill_steps=5";
  expect_parts(
      refusal(kMinimal, {steps, "qat.epochs=1"}),
      {": calibrate.distill_steps: teaches a network after training", "qat.distill_weight", "set qat.epochs: 0"});
  expect_parts(refusal(kMinimal, {steps, "data.format=synthetic", "data.synthetic_classes=2", "data.labels=pixels"}),
               {": calibrate.distill_steps: the float network teaches the class of each image"});
  expect_parts(refusal(kMinimal, {steps, "quant.sparsity=2:4"}),
               {": quant.sparsity: 2:4 needs its zeros, which calibrate.distill_steps would move"});
}

TEST(RecipeErrors, DistillationIsForQat) {
  expect_parts(refusal(kMinimal, {"qat.distill_weight=0.5"}),
               {": qat.distill_weight: the float network teaches in QAT"});
  EXPECT_EQ(parse_recipe(kMinimal, "r.yaml", {"qat.distill_weight=0.5", "qat.epochs=1"}).qat.distill_temperature, 4);
}

TEST(RecipeErrors, GraphNodes) {
  const std::string start = "data: {format: fashion_mnist}\nmodel:\n  name: graph\n  graph:\n";
  expect_parts(refusal(start + "    - {name: c, op: conv3d}\n"),
               {"r.yaml:5:21: model.graph.op: unknown op 'conv3d'; did you mean 'conv2d'?"});
  expect_parts(refusal(start + "    - {name: c, op: conv2d, kernle: 3}\n"),
               {"model.graph.kernle: unknown key; did you mean 'kernel'?"});
  expect_parts(refusal(start + "    - {name: c, op: conv2d, kernel: 2.5}\n"), {"model.graph.kernel"});
  expect_parts(refusal(start + "    - {op: conv2d}\n"), {"needs a name and an op"});
  expect_parts(refusal(start + "    - {name: a, name: b, op: relu}\n"), {"'name' is given twice"});
  expect_parts(refusal(start + "    - relu\n"), {"a node of the graph is a map"});
}

TEST(RecipeErrors, EveryNumberOutsideItsRangeIsRefused) {
  int checked = 0;
  for (const Field& field : schema()) {
    const bool list = type_name(field).rfind("list", 0) == 0;
    const auto refuse = [&](double value) {
      const std::string text = std::to_string(static_cast<long long>(value));
      expect_parts(refusal(kMinimal, {field.key + "=" + (list ? "[" + text + "]" : text)}), {": " + field.key + ": "});
      ++checked;
    };
    if (std::isfinite(field.rule.minimum)) refuse(field.rule.minimum - (field.rule.above_minimum ? 0 : 1));
    if (std::isfinite(field.rule.maximum)) refuse(field.rule.maximum + (field.rule.below_maximum ? 0 : 1));
    if (!field.rule.choices.empty()) {
      expect_parts(refusal(kMinimal, {field.key + "=" + (list ? "[nonsense]" : "nonsense")}),
                   {"unknown value 'nonsense'"});
    }
  }
  EXPECT_GT(checked, 80);
}

TEST(HostileRecipes, AreRefusedAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  expect_parts(refusal("a: &x [1]\nb: *x\n"), {"r.yaml:1:4: anchors (&name) are not supported"});
  std::string bomb = "a: &a [x]\n";
  for (char c = 'b'; c < 'z'; ++c)
    bomb += std::string(1, c) + ": &" + c + " [*" + char(c - 1) + ", *" + char(c - 1) + "]\n";
  expect_parts(refusal(bomb), {"anchors"});
  expect_parts(refusal("data: !!python/object:x {}\n"), {"tags (!type) are not supported"});
  expect_parts(refusal(std::string(100000, '[')), {"nested deeper than 16 levels"});
  expect_parts(refusal(std::string(100000, '{')), {"r.yaml:"});
  std::string nested;
  for (int i = 0; i < 600; ++i) nested += std::string(i, ' ') + "a:\n";
  expect_parts(refusal(nested), {"nested deeper than 16 levels"});
  expect_parts(refusal(kMinimal + "---\n" + kMinimal), {"a second document"});
  expect_parts(refusal(kMinimal + std::string("seed: 1\x04\n")), {"not a text file"});
  expect_parts(refusal(kMinimal + std::string("# \xff\n")), {"not a text file"});
  expect_parts(refusal(std::string((1 << 20) + 1, '#')), {"larger than 1 MiB"});
  expect_parts(refusal(std::string(1 << 20, 'k') + ": 1"), {"larger"});
  expect_parts(refusal(std::string(500000, 'k') + ": 1"), {"r.yaml:1:"});
  expect_parts(refusal("? [a]\n: 1\n"), {"a key must be a word"});
  expect_parts(refusal("data: {format: [\n"), {"not YAML"});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(RecipeFiles, MissingAndHugeFiles) {
  EXPECT_THROW(read_recipe("/nonexistent/recipe.yaml"), Error);
  const auto path =
      std::filesystem::temp_directory_path() / ("octet_huge_recipe_" + std::to_string(::getpid()) + ".yaml");
  std::ofstream(path) << "#";
  std::filesystem::resize_file(path, (1u << 20) + 1);
  EXPECT_THROW(read_recipe(path.string()), Error);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace octet
