// SPDX-License-Identifier: Apache-2.0
// What octet train refuses before it trains, and that nothing is left of it.
#include <filesystem>
#include <string>
#include <vector>

#include "src/base/files.h"
#include "tests/tools/train_tool.h"

namespace octet::test {
namespace {

namespace fs = std::filesystem;

TEST_F(Train, WrongRecipesNamePlaceKeyAndCure) {
  expect_refusal(octet({"train", path("none.yaml")}), 3, {"none.yaml", "No such file"});
  write("wrong.yaml", "data:\n  format: synthetic\n  flop: true\n");
  expect_refusal(octet({"train", path("wrong.yaml"), "--out", path("run")}), 2,
                 {"wrong.yaml:3:3: data.flop", "did you mean 'flip'"});
  expect_refusal(train("run", {"--set", "quant.activaton=affine_u8"}), 2,
                 {"--set 'quant.activaton=affine_u8'", "did you mean 'activation'"});
  expect_refusal(train("run", {"--set", "train.epochs=-1"}), 2, {"train.epochs", "0 .. 100000"});
  EXPECT_FALSE(fs::exists(path("run")));
}

TEST_F(Train, ListsInSetReachTheRecipeWhole) {
  ASSERT_EQ(
      train("run", {"--set", "data.mean=[0.25]", "--set", "train.schedule=step", "--set", "train.milestones=[1, 2,3]"})
          .code,
      0);
  expect_part(read_file(directory("run").recipe()), "milestones: [1, 2, 3]");
  expect_part(read_file(directory("run").command()), "'train.milestones=[1, 2,3]'");
}

/// data.decode decides how CUDA begins, so the device is looked at behind the recipe.
TEST_F(Train, ReadsItsRecipeBeforeItAsksForTheDevice) {
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--gpus", "2"}}) {
    std::vector<std::string> words = {"train", path("none.yaml"), "--device", "cuda"};
    words.insert(words.end(), more.begin(), more.end());
    expect_refusal(octet(words), 3, {"none.yaml"});
  }
}

TEST_F(Train, AMissingDataSetLeavesNothingBehind) {
  write("cifar.yaml", "data: {format: cifar10, path: nowhere}\nmodel: {name: resnet8}\ntrain: {epochs: 1}\n");
  const Answer answer = octet({"train", path("cifar.yaml"), "--out", path("run")});
  expect_refusal(answer, 3, {"nowhere"});
  EXPECT_EQ(answer.err.find("run directory"), std::string::npos) << answer.err;
  EXPECT_FALSE(fs::exists(path("run")));
}

TEST_F(Train, WhatIsRefusedNamesNoRunDirectoryAndMakesNone) {
  const auto expect_nothing_begun = [&](const std::vector<std::string>& more, int code,
                                        const std::vector<std::string>& parts) {
    const Answer answer = train("run", more);
    expect_refusal(answer, code, parts);
    EXPECT_EQ(answer.err.find("run directory"), std::string::npos) << answer.err;
    EXPECT_FALSE(fs::exists(path("run"))) << answer.err;
  };
  expect_nothing_begun({"--set", "qat.epochs=2", "--set", "qat.warmup_epochs=1.999"}, 2,
                       {"qat.warmup_epochs: 1.999 leaves nothing of 2 epochs"});
  for (const char* file : {"qat.safetensors", "float.safetensors"})
    expect_nothing_begun({"--set", std::string("export.file=") + file}, 2, {file, "other weights of this run"});
  expect_nothing_begun({"--set", "model.weights=none.safetensors"}, 3, {"none.safetensors"});
  expect_nothing_begun({"--set", "train.batch_size=200"}, 2, {"train: batch_size 200", "128 training images"});
  expect_nothing_begun({"--set", "qat.batch_size=200"}, 2, {"qat: batch_size 200", "128 training images"});
  expect_nothing_begun({"--set", "quant.layers=[{match: \"cnov3\", weight_bits: 4}]"}, 2,
                       {"quant.layers, 'cnov3': names no layer of small_cnn", "nearest: conv3"});
  expect_nothing_begun({"--set", "quant.layers=[{match: input, weight_bits: 4}]"}, 2,
                       {"'input': weight_bits 4: names only layers without weights"});
  if (!find_engine("cuda").available().ok) expect_nothing_begun({"--device", "cuda"}, 2, {"--device cuda"});
  write(
      "relu_last.yaml",
      R"(data: {format: synthetic, channels: 1, image_size: 8, synthetic_size: 64, synthetic_classes: 4, mean: [0.5], std: [0.25]}
model: {name: graph, graph: [{name: f, op: flatten}, {name: l, op: linear, out_channels: 4}, {name: r, op: relu}]}
train: {epochs: 1, batch_size: 32}
)");
  expect_refusal(octet({"train", path("relu_last.yaml"), "--out", path("run")}), 2,
                 {"the output 'l' (linear) would be codes, no logits"});
  EXPECT_FALSE(fs::exists(path("run")));
  write(
      "two_outputs.yaml",
      R"(data: {format: synthetic, channels: 1, image_size: 8, synthetic_size: 64, synthetic_classes: 4, mean: [0.5], std: [0.25]}
model: {name: graph, outputs: [l, c], graph: [{name: c, op: conv2d, out_channels: 2, kernel: 3},
  {name: f, op: flatten}, {name: l, op: linear, out_channels: 4}]}
train: {epochs: 1, batch_size: 32}
)");
  expect_refusal(octet({"train", path("two_outputs.yaml"), "--out", path("run")}), 2,
                 {"model graph: gives 'l' [4, 1, 1], 'c' [2, 6, 6], the data set has 4 classes for each image, so it "
                  "must give one output, [4, 1, 1]"});
  EXPECT_FALSE(fs::exists(path("run")));

  const std::string said = train("run").err;  // after a note in builds that write no TensorBoard files
  EXPECT_EQ(said.find("run directory: " + path("run")), said.starts_with("note: ") ? said.find('\n') + 1 : 0u);
  const Answer again = train("run");
  expect_refusal(again, 2, {"already holds files"});
  EXPECT_EQ(again.err.find("run directory"), std::string::npos) << again.err;
}

TEST_F(Train, ResumeAndOutAreChecked) {
  fs::create_directories(path("full"));
  write("full/notes.txt", "mine");
  expect_refusal(train("full", {"--quiet"}), 2, {"already holds files", "--resume"});
  EXPECT_EQ(read_file(path("full/notes.txt")), "mine");
  expect_refusal(octet({"train", path("full"), "--resume"}), 3, {"not a run directory"});
  expect_refusal(octet({"train", path("full")}), 2, {"--resume"});
  expect_refusal(octet({"train", path("tiny.yaml"), "--resume"}), 2, {"octet train RUN --resume"});
  expect_refusal(octet({"compare", path("full")}), 3, {"not a run directory", "octet train"});
}

}  // namespace
}  // namespace octet::test
