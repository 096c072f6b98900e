// SPDX-License-Identifier: Apache-2.0
// Segmentation as a user has it: octet train on images with a class for each pixel, and what follows from its run.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

#include "src/base/files.h"
#include "src/data/dataset.h"
#include "src/net/checkpoint.h"
#include "src/net/zoo.h"
#include "src/quant/convert.h"
#include "src/recipe/run.h"
#include "tests/tools/program.h"

namespace octet::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kRecipe = R"(threads: 1
data: {format: synthetic, labels: pixels, channels: 1, image_size: 16, synthetic_size: 160, synthetic_classes: 2,
  validation_fraction: 0.25, limit_test: 24, mean: [0.4], std: [0.2], workers: 1, pad: 2, flip: true, cutout: 4}
model: {name: unet2, width: 0.125}
train: {epochs: 8, batch_size: 12, optimizer: adamw, learning_rate: 0.01}
calibrate: {images: 16, batch_size: 8}
qat: {epochs: 1, batch_size: 12, learning_rate: 0.01, label_smoothing: 0.1}
evaluate: {engines: [cpu, reference]}
)";

class Segment : public ToolTest {
 protected:
  void SetUp() override { write("tiny.yaml", kRecipe); }
  Answer train(std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"train", path("tiny.yaml"), "--json", "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    if (std::find(more.begin(), more.end(), "--out") == more.end()) words.insert(words.end(), {"--out", path("run")});
    return octet(words);
  }
  RunDirectory directory() const { return {path("run")}; }
};

TEST_F(Segment, TrainsComparesAndReportsMeanIou) {
  const Answer answer = train();
  ASSERT_EQ(answer.code, 0) << answer.err;
  const json report = json::parse(answer.out);
  EXPECT_EQ(report.at("labels"), "pixels");
  const json& headline = report.at("headline");
  EXPECT_EQ(headline.at("score"), "mean IoU");
  EXPECT_EQ(headline.at("identical"), true);
  EXPECT_EQ(headline.at("paired_images"), 24);
  std::map<std::string, double> scores;
  for (const json& row : report.at("rows")) scores[row.at("name")] = row.at("mean_iou");
  EXPECT_EQ(headline.at("float_score"), scores.at("float"));
  EXPECT_NEAR(headline.at("points_lost").get<double>(), 100 * (scores.at("float") - scores.at("cpu")), 1e-9);
  EXPECT_EQ(scores.at("cpu"), scores.at("qat_graph"));
  EXPECT_EQ(scores.at("reference"), scores.at("qat_graph"));
  EXPECT_GT(scores.at("float"), 0.5);  // background everywhere is 0.38
  for (const json& epoch : report.at("epochs")) {
    EXPECT_GT(epoch.at("validation_mean_iou"), 0.2);
    EXPECT_GT(epoch.at("train_top1"), 0.4);
    EXPECT_LE(epoch.at("train_top1"), 1);
  }
  const std::string html = read_file(directory().report_html());
  expect_part(html, "<section id=\"images\"");
  expect_part(html, "src=\"data:image/png;base64,iVBORw0KGgo");
  expect_part(html, "mean IoU");

  const Answer compared = octet({"compare", path("run"), "--json", "--quiet"});
  ASSERT_EQ(compared.code, 0) << compared.err;
  EXPECT_EQ(json::parse(compared.out).at("identical"), true);
  const Answer again = octet({"export", path("run"), "--out", path("again.safetensors")});
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(read_file(path("again.safetensors")), read_file(directory().int8()));
  const Answer evaluated = octet({"evaluate", path("run"), "--engine", "cpu"});
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  expect_part(evaluated.out, "mean IoU");
  const Answer inspected = octet({"inspect", path("run")});
  ASSERT_EQ(inspected.code, 0) << inspected.err;
  expect_part(inspected.out, "2 classes for each of 16x16 pixels");
  expect_part(inspected.out, "cpu_mean_iou");
  const Answer analyzed = octet({"analyze", path("run"), "--json", "--quiet"});
  ASSERT_EQ(analyzed.code, 0) << analyzed.err;
  const double same = json::parse(analyzed.out).at("all").at("same_class");
  EXPECT_GT(same, 0.5);  // of pixels
  EXPECT_LE(same, 1);
  expect_part(octet({"analyze", path("run"), "--quiet", "--images", "4"}).out,
              "% of the pixels of 4 validation images");
  const Answer benched = octet({"bench", path("run"), "--engine", "cpu", "--seconds", "0.05"});
  EXPECT_EQ(benched.code, 0) << benched.err;
}

TEST_F(Segment, RunWritesMasksAndCalibrateChoosesByMeanIou) {
  ASSERT_EQ(train({"--set", "train.epochs=1", "--set", "qat.epochs=0"}).code, 0);
  const Answer calibrated = octet({"calibrate", path("run"), "--all", "--json", "--quiet"});
  ASSERT_EQ(calibrated.code, 0) << calibrated.err;
  const json choice = json::parse(calibrated.out);
  double best = 0;
  for (const json& result : choice.at("results")) best = std::max(best, result.at("validation_mean_iou").get<double>());
  EXPECT_EQ(choice.at("chosen").at("validation_mean_iou"), best);

  Image image{16, 16, 1, std::vector<uint8_t>(256, 90)};
  write("image.png", encode_png(image));
  fs::create_directory(path("masks"));
  const Answer ran = octet({"run", path("run"), path("image.png"), "--masks", path("masks"), "--json", "--quiet"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const json found = json::parse(ran.out).at(0).at("top");
  EXPECT_EQ(found.size(), 2u);
  const std::string png = read_file(path("masks/image_mask.png"));
  const Image mask = decode_image(png, 1, "mask");
  ASSERT_EQ(mask.pixels.size(), 256u);
  long shapes = 0;
  for (const uint8_t pixel : mask.pixels) {
    ASSERT_LT(pixel, 2);
    shapes += pixel;
  }
  for (const json& top : found) {
    const double share = static_cast<double>(top.at("class") == 1 ? shapes : 256 - shapes) / 256;
    EXPECT_NEAR(top.at("pixels"), share, 1e-9);
  }
  const Answer drawn = octet({"run", path("run"), path("image.png"), "--out", path("classes.png"), "--quiet"});
  ASSERT_EQ(drawn.code, 0) << drawn.err;
  const std::string over = read_file(path("classes.png"));
  EXPECT_EQ(decode_image(over, 3, "classes.png").width, 16);
  expect_refusal(octet({"run", path("run"), path("image.png"), path("image.png"), "--masks", path("masks")}), 2,
                 {"image_mask.png", "two calls"});
  expect_refusal(octet({"run", path("run"), path("image.png"), "--masks", path("none")}), 3, {"no such folder"});
  expect_refusal(octet({"run", random_checkpoint(), path("image.png"), "--masks", path("masks")}), 2,
                 {"one class for each image"});
}

/// Images of 12 x 20 pixels, which are placed in an input of 16 x 32 for the network; a light field on the right.
TEST_F(Segment, FoldersOfImagesAndMasksTrain) {
  for (const std::string split : {"train", "val", "test"})
    for (int i = 0; i < 24; ++i) {
      Image image{12, 20, 1, {}}, mask = image;
      for (int p = 0; p < 240; ++p) {
        const bool light = p % 20 > 4 + i % 12;
        image.pixels.push_back(static_cast<uint8_t>((light ? 170 : 60) + (p * 7 + i) % 30));
        mask.pixels.push_back(p < 20 ? 7 : light ? 1 : 0);
      }
      for (const std::string folder : {"images/", "masks/"}) fs::create_directories(path(folder + split));
      write(fmt::format("images/{}/p{}.png", split, i), encode_png(image));
      write(fmt::format("masks/{}/p{}.png", split, i), encode_png(mask));
    }
  write("folder.yaml",
        "threads: 1\ndata: {format: image_folder, labels: pixels, channels: 1, path: " + path("") +
            R"(, validation: val, test: test, class_names: [dark, light], ignore_index: 7, image_size: 16,
  image_width: 32, fit: letterbox, scale: 0.3, translate: 0.1, flip: true, mean: [0.4], std: [0.2], workers: 1}
model: {name: unet2, width: 0.125}
train: {epochs: 12, batch_size: 8, optimizer: adamw, learning_rate: 0.01}
calibrate: {images: 16, batch_size: 8}
qat: {epochs: 1, batch_size: 8, learning_rate: 0.01}
evaluate: {engines: [cpu, reference]}
)");
  const Answer answer = octet({"train", path("folder.yaml"), "--out", path("run"), "--json", "--quiet"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const json report = json::parse(answer.out);
  EXPECT_EQ(report.at("headline").at("identical"), true);
  for (const json& row : report.at("rows")) EXPECT_GT(row.at("mean_iou"), 0.9) << row.at("name");
  write("masks/test/p3.png", encode_png({12, 21, 1, std::vector<uint8_t>(252)}));
  expect_refusal(octet({"train", path("folder.yaml"), "--out", path("again")}), 3,
                 {"data.test", "p3.png: 20x12 pixels, its mask", "21x12"});
  EXPECT_FALSE(fs::exists(path("again")));
}

/// Two processes, of whose images one may have most of the labelled pixels, train and measure as one does.
TEST_F(Segment, TwoProcessesTrainOnMasksAsOne) {
  const auto run = [&](std::vector<std::string> more, const std::string& folder) {
    for (const char* key : {"train.epochs=2", "train.optimizer=sgd", "train.learning_rate=0.001", "qat.epochs=0",
                            "train.sync_batch_norm=true"})
      more.insert(more.end(), {"--set", key});
    more.insert(more.end(), {"--out", path(folder)});
    const Answer answer = train(more);
    EXPECT_EQ(answer.code, 0) << answer.err;
    return json::parse(answer.out);
  };
  const json one = run({}, "one"), two = run({"--gpus", "2", "--device", "cpu"}, "two");
  EXPECT_EQ(two.at("headline").at("identical"), true);
  for (const char* key : {"train_loss", "train_top1", "validation_loss", "validation_mean_iou"})
    EXPECT_NEAR(two.at("epochs").at(1).at(key).get<double>(), one.at("epochs").at(1).at(key).get<double>(), 1e-5)
        << key;
  EXPECT_LT(one.at("epochs").at(1).at("train_loss"), one.at("epochs").at(0).at("train_loss"));
}

/// A pixel of a mask is a byte, of which 255 says that it has no class.
TEST_F(Segment, MasksHave255ClassesAtMost) {
  const Graph many = build_model({.name = "unet2", .input = {1, 16, 16}, .classes = 256, .width = 0.125});
  write_checkpoint(path("many.safetensors"), random_int8_graph(many, {}, 1));
  write("image.png", encode_png({16, 16, 1, std::vector<uint8_t>(256, 90)}));
  fs::create_directory(path("masks"));
  for (const auto& [option, place] : {std::pair{"--masks", "masks"}, std::pair{"--out", "classes.png"}})
    expect_refusal(octet({"run", path("many.safetensors"), path("image.png"), option, path(place)}), 2,
                   {"float32 [256, 16, 16], no classes of pixels", "255 classes at most"});
}

TEST_F(Segment, WhatDoesNotFitIsNamedBeforeAnythingIsWritten) {
  expect_refusal(train({"--set", "model.name=small_cnn"}), 2,
                 {"gives 'linear' [2, 1, 1]", "each pixel", "model.name: unet"});
  expect_refusal(train({"--set", "data.labels=image"}), 2,
                 {"gives 'head' [2, 16, 16]", "each image", "data.labels: pixels"});
  expect_refusal(train({"--set", "data.synthetic_classes=3"}), 2, {"data.synthetic_classes", "2 (background, shape)"});
  expect_refusal(train({"--set", "data.image_size=18"}), 2, {"unet2 halves the image 2 times", "18x18"});
  EXPECT_FALSE(fs::exists(path("run")));
}

}  // namespace
}  // namespace octet::test
