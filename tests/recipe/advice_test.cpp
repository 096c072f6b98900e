// SPDX-License-Identifier: Apache-2.0
// What the refusal of a recipe advises leads to a recipe that is read: each cure that a message names is applied here.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/recipe/schema.h"

namespace octet {
namespace {

using Keys = std::vector<std::string>;

const std::string kSynthetic = "data: {format: synthetic}\nmodel: {name: resnet8}\n";
const std::string kFolders = "data: {format: image_folder, path: x}\nmodel: {name: resnet8}\n";
const std::string kCifar = "data: {format: cifar10, path: x}\nmodel: {name: resnet8}\n";

struct Case {
  std::string recipe;
  Keys given;               ///< with which it is refused
  std::string key, advice;  ///< of the message: the key in question, and the words that name the cures
  std::vector<Keys> cures;  ///< in place of `given`
};

/// The message of the refusal, or "" if it is read.
std::string refused_with(const std::string& recipe, const Keys& keys) {
  try {
    parse_recipe(recipe, "r.yaml", keys);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

void expect_cured(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    const std::string message = refused_with(c.recipe, c.given);
    EXPECT_NE(message.find(c.key + ": "), std::string::npos) << c.key << " in: " << message;
    EXPECT_NE(message.find(c.advice), std::string::npos) << c.advice << " in: " << message;
    for (const Keys& cure : c.cures) EXPECT_EQ(refused_with(c.recipe, cure), "") << c.key << ", " << c.advice;
  }
}

TEST(RecipeAdvice, Data) {
  const std::string scenes = "data: {format: synthetic, labels: pixels, synthetic_classes: 2}\nmodel: {name: unet}\n";
  const std::string labels = "data.labels=pixels", masks = "data.format=synthetic";
  expect_cured({
      {kSynthetic, {"data.test_path=x"}, "data.test_path", "leave it out", {{}}},
      {kCifar,
       {"data.image_size=64"},
       "data.image_size",
       "set data.resize",
       {{"data.image_size=64", "data.resize=64"}}},
      {kCifar,
       {labels},
       "data.labels",
       "masks come with data.format image_folder (beside the images) and synthetic",
       {{labels, masks, "data.synthetic_classes=2"}}},
      {scenes,
       {"data.synthetic_classes=10"},
       "data.synthetic_classes",
       "2 (background, shape) or 4",
       {{"data.synthetic_classes=2"}, {"data.synthetic_classes=4"}}},
      {kFolders,
       {labels},
       "data.class_names",
       "or data.classes, a file",
       {{labels, "data.class_names=[a]"}, {labels, "data.classes=c"}}},
      {kCifar, {"data.channels=1"}, "data.channels", "images of cifar10 have 3", {{"data.channels=3"}}},
      {kCifar, {"data.path="}, "data.path", "needed", {{"data.path=y"}}},
      {kCifar, {"train.epochs"}, "--set 'train.epochs'", "needs the form key.path=value", {{"train.epochs=3"}}},
  });
}

TEST(RecipeAdvice, Splits) {
  const std::string test = "data.test=test", fraction = "data.validation_fraction=0.1";
  const std::string named = "data.validation=val";
  expect_cured({
      {kFolders,
       {test, "data.validation=test"},
       "data.validation",
       "leave data.validation out (it is cut from the training split then), or name other images",
       {{test}, {test, named}}},
      {kFolders, {test, "data.validation=train"}, "data.validation", "leave data.validation out", {{test}}},
      {kFolders,
       {test, named, fraction},
       "data.validation_fraction",
       "leave one of them out",
       {{test, named}, {test, fraction}}},
      {kFolders,
       {test, "data.validation_fraction=0"},
       "data.validation_fraction",
       "set a share above 0, or name a split in data.validation",
       {{test, fraction}, {test, named, "data.validation_fraction=0"}, {test, named}}},
      {kFolders,
       {"data.test=train", "qat.epochs=1"},
       "data.test",
       "name other images (only post-training quantization, with train.epochs and qat.epochs 0",
       {{test, "qat.epochs=1"}, {"data.test=train", "train.epochs=0", "qat.epochs=0"}}},
  });
}

TEST(RecipeAdvice, Model) {
  const std::string node = "model.graph=[{name: a, op: relu}]";
  expect_cured({
      {kCifar, {"model.name=graph"}, "model.name", "needs the nodes in model.graph", {{"model.name=graph", node}}},
      {kCifar, {node}, "model.graph", "only for model.name graph", {{"model.name=graph", node}, {}}},
      {kCifar,
       {"model.name=onnx"},
       "model.name",
       "needs the network's file in model.onnx",
       {{"model.name=onnx", "model.onnx=n.onnx"}}},
      {kCifar,
       {"model.onnx=n.onnx"},
       "model.onnx",
       "only for model.name onnx",
       {{"model.name=onnx", "model.onnx=n.onnx"}, {}}},
      {kCifar,
       {"model.outputs=[a]"},
       "model.outputs",
       "only for model.name graph or onnx",
       {{"model.outputs=[a]", "model.name=onnx", "model.onnx=n.onnx"},
        {"model.outputs=[a]", "model.name=graph", node}}},
  });
}

TEST(RecipeAdvice, Training) {
  const std::string epochs = "qat.epochs=2", pixels = "data.labels=pixels", classes = "data.synthetic_classes=2";
  const std::string distill = "qat.distill_weight=0.5";
  expect_cured({
      {kCifar,
       {"train.schedule=step"},
       "train.schedule",
       "needs train.milestones",
       {{"train.schedule=step", "train.milestones=[1]"}}},
      {kCifar,
       {epochs, "qat.warmup_epochs=3"},
       "qat.warmup_epochs",
       "set qat.warmup_epochs below it, 0 for none",
       {{epochs, "qat.warmup_epochs=1"}, {epochs, "qat.warmup_epochs=0"}}},
      {kCifar,
       {"train.momentum=0", "train.nesterov=true"},
       "train.nesterov",
       "needs train.momentum above 0",
       {{"train.momentum=0.9", "train.nesterov=true"}}},
      {kCifar, {distill}, "qat.distill_weight", "set epochs, or leave it out", {{distill, epochs}, {}}},
      {kCifar,
       {"qat.float_control=true"},
       "qat.float_control",
       "set epochs, or leave it out",
       {{"qat.float_control=true", epochs}, {}}},
      {kCifar,
       {epochs, "parallel.exchange=fp16"},
       "parallel.exchange",
       "set fp32, or precision fp16",
       {{epochs, "parallel.exchange=fp32"},
        {epochs, "parallel.exchange=fp16", "train.precision=fp16", "qat.precision=fp16"}}},
  });
}

TEST(RecipeAdvice, Repairs) {
  const std::string epochs = "qat.epochs=2", none = "qat.epochs=0";
  std::vector<Case> cases;
  for (const std::string repair : {"calibrate.equalize=true", "calibrate.rounding=adaround", "calibrate.rounding=block",
                                   "calibrate.distill_steps=5"})
    cases.push_back({kCifar,
                     {repair, epochs},
                     repair.substr(0, repair.find('=')),
                     "set qat.epochs: 0, or leave it out",
                     {{repair, none}, {epochs}}});
  const std::string drop = "calibrate.rounding_drop=0.5", steps = "calibrate.distill_steps=5";
  cases.push_back({kCifar,
                   {drop},
                   "calibrate.rounding_drop",
                   "set block, or 0",
                   {{drop, "calibrate.rounding=block"}, {"calibrate.rounding_drop=0"}}});
  cases.push_back({kCifar,
                   {steps, epochs},
                   "calibrate.distill_steps",
                   "in QAT qat.distill_weight does",
                   {{"qat.distill_weight=0.5", epochs}}});
  cases.push_back({kSynthetic,
                   {steps, "data.labels=pixels", "data.synthetic_classes=2"},
                   "calibrate.distill_steps",
                   "leave it out",
                   {{"data.labels=pixels", "data.synthetic_classes=2"}}});
  expect_cured(cases);
}

TEST(RecipeAdvice, Quantization) {
  const std::string epochs = "qat.epochs=2", lsq = "quant.scales=lsq", sparse = "quant.sparsity=2:4";
  const std::string weights = "quant.weight_calibrator=lsq", tensor = "quant.weight_granularity=per_tensor";
  const std::string affine = "quant.activation=affine_u8", rate = "qat.scale_learning_rate=0.1";
  const std::string symmetric = "quant.activation=symmetric_s8";
  expect_cured({
      {kCifar, {lsq}, "quant.scales", "set epochs, or auto", {{lsq, epochs}, {"quant.scales=fixed"}}},
      {kCifar, {"quant.scales=observed"}, "quant.scales", "set epochs, or auto", {{"quant.scales=observed", epochs}}},
      {kCifar,
       {weights},
       "quant.weight_calibrator",
       "set epochs, or mse",
       {{weights, epochs}, {"quant.weight_calibrator=mse"}}},
      {kCifar,
       {weights, epochs, tensor},
       "quant.weight_calibrator",
       "set per_channel, or mse",
       {{weights, epochs, "quant.weight_granularity=per_channel"}, {"quant.weight_calibrator=mse", epochs, tensor}}},
      {kCifar,
       {epochs, rate},
       "qat.scale_learning_rate",
       "set quant.scales: lsq or lsq_plus, or quant.weight_calibrator: lsq, or leave it out",
       {{epochs, rate, lsq}, {epochs, rate, "quant.scales=lsq_plus", affine}, {epochs, rate, weights}, {epochs}}},
      {kCifar,
       {epochs, "quant.scales=lsq_plus", symmetric},
       "quant.scales",
       "set affine_u8, or lsq",
       {{epochs, "quant.scales=lsq_plus", affine}, {epochs, lsq, symmetric}}},
      {kCifar,
       {sparse, "calibrate.rounding=adaround"},
       "quant.sparsity",
       "set nearest, or none",
       {{sparse, "calibrate.rounding=nearest"}, {"quant.sparsity=none", "calibrate.rounding=adaround"}}},
      {kCifar,
       {sparse, "calibrate.distill_steps=5"},
       "quant.sparsity",
       "leave one of them out",
       {{sparse}, {"calibrate.distill_steps=5"}}},
  });
}

TEST(RecipeAdvice, Recompute) {
  const std::string epochs = "qat.epochs=2", again = "qat.recompute=true", half = "qat.precision=fp16";
  const auto fits_not = [&](const std::string& other, const std::string& advice, const std::string& cure) {
    return Case{kCifar,
                {again, epochs, half, other},
                "qat.recompute",
                "set " + advice + ", or leave it out",
                {{again, epochs, half, cure}, {epochs, half, other}}};
  };
  expect_cured({
      {kCifar, {again, half}, "qat.recompute", "set epochs, or leave it out", {{again, half, epochs}, {half}}},
      fits_not("qat.precision=fp32", "qat.precision: fp16 or bf16", "qat.precision=bf16"),
      fits_not("qat.freeze_batch_norm=0", "more than 0", "qat.freeze_batch_norm=0.1"),
      fits_not("qat.sync_batch_norm=true", "qat.sync_batch_norm: false", "qat.sync_batch_norm=false"),
      fits_not("quant.scales=lsq", "quant.scales: fixed or observed", "quant.scales=observed"),
  });
}

TEST(RecipeAdvice, ForwardOnCodes) {
  const std::string epochs = "qat.epochs=2", int8 = "qat.forward=int8", plain = "qat.forward=simulation";
  const auto fits_not = [&](const std::string& other, const std::string& advice, const std::string& cure) {
    return Case{kCifar,
                {int8, epochs, other},
                "qat.forward",
                "set " + advice + ", or qat.forward: simulation",
                {{int8, epochs, cure}, {plain, epochs, other}}};
  };
  expect_cured({
      {kCifar, {int8}, "qat.forward", "set epochs, or leave it out", {{int8, epochs}, {}}},
      {kCifar,
       {int8, epochs, "qat.freeze_batch_norm=1"},
       "qat.forward",
       "set less than 1, or leave it out",
       {{int8, epochs, "qat.freeze_batch_norm=0.9"}, {epochs, "qat.freeze_batch_norm=1"}}},
      fits_not("quant.scales=lsq", "quant.scales: fixed or observed", "quant.scales=observed"),
      fits_not("quant.scales=lsq_plus", "quant.scales: fixed or observed", "quant.scales=fixed"),
      fits_not("quant.activation_bits=3", "quant.activation_bits: 4", "quant.activation_bits=4"),
      fits_not("quant.sparsity=2:4", "quant.sparsity: none", "quant.sparsity=none"),
      fits_not("parallel.stages=[layer2]", "no parallel.stages", "parallel.stages=[]"),
      {kCifar,
       {int8, epochs, "quant.scales=observed", "qat.freeze_observers=1"},
       "qat.forward",
       "set less than 1, or qat.forward: simulation",
       {{int8, epochs, "quant.scales=observed", "qat.freeze_observers=0.9"},
        {plain, epochs, "quant.scales=observed", "qat.freeze_observers=1"}}},
      // Weights may have few bits, and scales that learn.
      fits_not("quant.scales=lsq", "quant.scales: fixed or observed", "quant.weight_calibrator=lsq"),
      fits_not("quant.activation_bits=2", "quant.activation_bits: 4", "quant.weight_bits=2"),
  });
}

TEST(RecipeAdvice, Stages) {
  const std::string stages = "parallel.stages=[layer2]", epochs = "qat.epochs=2", train = "train.epochs=2";
  const auto cut = [&](const std::string& key, const std::string& other, const std::string& advice,
                       const std::vector<Keys>& more = {}) {
    std::vector<Keys> cures = {{stages, epochs, train}, {epochs, train, other}};
    cures.insert(cures.end(), more.begin(), more.end());
    return Case{kCifar, {stages, epochs, train, other}, key, advice, cures};
  };
  std::vector<Keys> scales;
  for (const char* kind : {"fixed", "lsq", "lsq_plus"})
    scales.push_back({stages, epochs, train, "quant.activation=affine_u8", std::string("quant.scales=") + kind});
  const std::string one = "leave one of them out";
  expect_cured({
      cut("quant.scales", "quant.scales=observed", "set fixed, lsq or lsq_plus", scales),
      cut("qat.distill_weight", "qat.distill_weight=0.5", one),
      cut("model.dropout", "model.dropout=0.1", "set 0, or leave the stages out",
          {{stages, epochs, "model.dropout=0"}}),
      cut("quant.sparsity", "quant.sparsity=2:4", one),
      cut("train.sync_batch_norm", "train.sync_batch_norm=true", one),
      cut("qat.sync_batch_norm", "qat.sync_batch_norm=true", one),
  });
}

TEST(RecipeAdvice, Engines) {
  const std::string symmetric = "quant.activation=symmetric_s8", fallback = "evaluate.fallback=cuda";
  std::vector<Case> cases = {
      {kCifar, {"evaluate.engines=[]"}, "evaluate.engines", "[auto]", {{"evaluate.engines=[auto]"}}},
      {kCifar, {"export.file=x.bin"}, "export.file", "ends in .safetensors", {{"export.file=x.safetensors"}}}};
  for (const std::string peer : {"cudnn", "cutlass"}) {
    const std::string engines = "evaluate.engines=[auto, " + peer + "]", left = "evaluate.engines=[auto]";
    cases.push_back({kCifar,
                     {engines, symmetric},
                     "evaluate.engines",
                     "add evaluate.fallback: cuda, or leave " + peer + " out",
                     {{engines, symmetric, fallback}, {left, symmetric}}});
    cases.push_back({kCifar,
                     {fallback},
                     "evaluate.fallback",
                     "add one to evaluate.engines, or leave the fallback out",
                     {{engines, symmetric, fallback}, {}}});
    // The fallback is for the engine alone and is left out with it, as the message after this one says.
    cases.push_back({kCifar,
                     {engines, fallback, "quant.activation=affine_u8"},
                     "evaluate.engines",
                     "set symmetric_s8, or leave " + peer + " out",
                     {{engines, fallback, symmetric}, {left, "quant.activation=affine_u8"}}});
  }
  expect_cured(cases);
}

}  // namespace
}  // namespace octet
