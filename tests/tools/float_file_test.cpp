// SPDX-License-Identifier: Apache-2.0
// octet evaluate and octet compare of a float .onnx file: accuracy on class folders, AP, and whether ONNX Runtime reads
// the same network in it.
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "src/data/dataset.h"
#include "tests/data/images.h"
#include "tests/net/onnx/model_builder.h"
#include "tests/source_dir.h"
#include "tests/tools/program.h"

namespace octet::test {
namespace {

using nlohmann::json;

class FloatFile : public ToolTest {
 protected:
  ~FloatFile() override { python_.empty() ? ::unsetenv("OCTET_PYTHON") : ::setenv("OCTET_PYTHON", python_.c_str(), 1); }

  json parsed(const std::vector<std::string>& words) const {
    const Answer answer = octet(words);
    EXPECT_EQ(answer.code, 0) << answer.err;
    return json::parse(answer.out, nullptr, /*allow_exceptions=*/false);
  }

  /// An image of noise in which one channel is brighter.
  void write_image(const std::string& name, int bright, uint64_t seed) const {
    Image image = testing::noise(36, 40, 3, seed);
    for (size_t i = 0; i < image.pixels.size(); ++i)
      image.pixels[i] = static_cast<uint8_t>(image.pixels[i] / 2 + (static_cast<int>(i % 3) == bright ? 100 : 0));
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    write(name, encode_png(image));
  }

  /// A network whose classes are red, green and blue, by the means of the channels; its layer changes nothing.
  static ModelBuilder colours() {
    ModelBuilder model({3, 32, 32});
    model.weight("same.weight", {3, 1, 1, 1}, 1, 1);
    model.node("Conv", {"image", "same.weight"}, "same").integer("group", 3);
    model.node("GlobalAveragePool", {"same"}, "pool");
    model.node("Flatten", {"pool"}, "means").integer("axis", 1);
    return model;
  }

  const std::string python_ = std::getenv("OCTET_PYTHON") != nullptr ? std::getenv("OCTET_PYTHON") : "";
};

TEST_F(FloatFile, EvaluateMeasuresItsAccuracy) {
  write("net.onnx", colours().bytes("means"));
  write("classes.txt", "red\ngreen\nblue\n");
  write_image("images/red/0.png", 0, 1);
  write_image("images/red/1.png", 0, 2);
  write_image("images/red/2.png", 1, 3);  // the wrong folder
  write_image("images/green/0.png", 1, 4);
  write_image("images/blue/0.png", 2, 5);
  const std::vector<std::string> command = {"evaluate",     path("net.onnx"), "--images",
                                            path("images"), "--classes-file", path("classes.txt"),
                                            "--json",       "--device",       "cpu"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = command;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const json report = parsed(with({"--preset", "none"}));
  ASSERT_EQ(report.at("rows").size(), 1u);
  const json& row = report.at("rows").at(0);
  EXPECT_EQ(row.at("name"), "float");
  EXPECT_EQ(row.at("images"), 5);
  EXPECT_NEAR(row.at("top1").get<double>(), 4.0 / 5, 1e-9);
  EXPECT_EQ(row.at("bytes"), std::filesystem::file_size(path("net.onnx")));
  // Red and blue exchanged: of the five only the green one is right.
  EXPECT_NEAR(parsed(with({"--preset", "none", "--order", "bgr"})).at("rows").at(0).at("top1").get<double>(), 1.0 / 5,
              1e-9);

  expect_refusal(octet(command), 2, {"how do images become the network's input? --preset imagenet"});
  expect_refusal(octet(with({"--preset", "none", "--engine", "cpu"})), 2,
                 {"net.onnx: is a float network, which no engine runs", "octet quantize"});
  expect_refusal(octet(with({"--preset", "none", "--all"})), 2, {"--all"});
  ModelBuilder bare({3, 32, 32});
  bare.node("GlobalAveragePool", {"image"}, "y");
  write("bare.onnx", bare.bytes("y"));
  expect_refusal(octet({"evaluate", path("bare.onnx"), "--images", path("images"), "--preset", "none"}), 2,
                 {"bare.onnx: has no layer with weights"});
  write("images/red/small.png", encode_png(testing::noise(20, 40, 3, 1)));
  expect_refusal(octet(with({"--preset", "none"})), 3, {"small.png: image of 20x40", "--resize or --fit letterbox"});
  expect_refusal(octet({"evaluate", random_checkpoint(), "--images", path("images"), "--preset", "imagenet"}), 2,
                 {"--preset: is for a float .onnx file", "leave it out"});
}

TEST_F(FloatFile, EvaluateMeasuresThePrecisionOfItsBoxes) {
  ModelBuilder model({3, 32, 32});
  const auto layer = [&](const std::string& name, const std::vector<float>& biases) {
    model.weight(name + ".weight", {static_cast<int64_t>(biases.size()), 3, 32, 32}, 0, 0);
    model.reals(name + ".bias", biases);
    model.node("Conv", {"image", name + ".weight", name + ".bias"}, name).ints("strides", {32, 32});
  };
  layer("boxes", {0.5f, 0.25f, -0.69314718f, -1.38629436f});  // 16 x 8 pixels at 8, 4; log of 1/2 and 1/4
  layer("objectness", {4});
  layer("classes", {-3, 2});
  write("net.onnx", model.bytes(std::vector<std::string>{"boxes", "objectness", "classes"}));
  write("names", "cat\ndog\n");
  std::filesystem::create_directory(path("images"));
  write("images/wide.png", encode_png(testing::noise(32, 64, 3, 1)));
  write("images/square.png", encode_png(testing::noise(32, 32, 3, 2)));
  write("a.json", json{{"images",
                        {{{"id", 5}, {"file_name", "wide.png"}, {"height", 32}, {"width", 64}},
                         {{"id", 6}, {"file_name", "square.png"}, {"height", 32}, {"width", 32}}}},
                       {"annotations",
                        {{{"image_id", 5}, {"category_id", 2}, {"bbox", {16, 8, 32, 16}}},     // exact
                         {{"image_id", 6}, {"category_id", 2}, {"bbox", {8, 4, 16, 10.2}}}}},  // IoU 0.784
                       {"categories", {{{"id", 1}, {"name", "cat"}}, {{"id", 2}, {"name", "dog"}}}}}
                      .dump());
  const std::vector<std::string> command = {"evaluate",    path("net.onnx"), "--images", path("images"),
                                            "--boxes",     path("a.json"),   "--json",   "--classes-file",
                                            path("names"), "--device",       "cpu",      "--preset"};
  const auto with = [&](const std::string& preset) {
    std::vector<std::string> words = command;
    words.push_back(preset);
    return words;
  };
  const json found = parsed(with("yolox"));
  EXPECT_NEAR(found.at("ap").get<double>(), (6 * 1 + 4 * 51.0 / 101) / 10, 1e-6);
  EXPECT_TRUE(found.at("engine").is_null());
  expect_refusal(octet(with("imagenet")), 2, {"--boxes: --preset yolox or yolo says which detector's head"});
  EXPECT_EQ(octet(with("yolo")).code, 2);  // the outputs are none of YOLOv8's
}

TEST_F(FloatFile, CompareShowsWhatAnotherRuntimeMakesOfEachOutput) {
  ModelBuilder model = colours();
  model.node("Relu", {"pool"}, "off");
  write("net.onnx", model.bytes(std::vector<std::string>{"means", "off"}));
  for (int i = 0; i < 3; ++i) write_image("images/" + std::to_string(i) + ".png", i, static_cast<uint64_t>(i));
  const std::vector<std::string> command = {"compare",     path("net.onnx"), "--images", path("images"),
                                            "--preset",    "none",           "--json",   "--against",
                                            "onnxruntime", "--device",       "cpu"};
  const std::string numpy = python_with("numpy");
  if (numpy.empty()) GTEST_SKIP() << "needs a Python with numpy";
  write("python", "#!/bin/sh\nPYTHONDONTWRITEBYTECODE=1 PYTHONPATH='" + source_dir() +
                      "/tests/tools/fake_onnxruntime' exec '" + numpy + "' \"$@\"\n");
  std::filesystem::permissions(path("python"), std::filesystem::perms::owner_all);
  ::setenv("OCTET_PYTHON", path("python").c_str(), 1);
  const json found = parsed(command);
  EXPECT_EQ(found.at("images"), 3);
  ASSERT_EQ(found.at("outputs").size(), 2u);
  const json &means = found.at("outputs").at(0), &off = found.at("outputs").at(1);
  EXPECT_EQ(means.at("output"), "means");
  EXPECT_LT(means.at("largest_difference"), 1e-6);
  EXPECT_GT(means.at("largest_value"), 0.4);  // of pixels of 0..1
  EXPECT_EQ(means.at("same_class"), 1);
  EXPECT_EQ(off.at("output"), "off");
  EXPECT_NEAR(off.at("largest_difference").get<double>(), 0.5, 1e-6);
  EXPECT_LT(off.at("signal_to_difference_db"), 3);

  std::vector<std::string> cut = command;
  cut.insert(cut.end(), {"--outputs", "off", "--limit", "2"});
  const json one = parsed(cut);
  EXPECT_EQ(one.at("images"), 2);
  ASSERT_EQ(one.at("outputs").size(), 1u);
  EXPECT_EQ(one.at("outputs").at(0).at("output"), "off");
}

/// Layers of two outputs, which the real ONNX Runtime computes as LibTorch does.
TEST_F(FloatFile, OnnxRuntimeReadsTheSameNetwork) {
  const std::string python = python_with("numpy, onnxruntime");
  if (python.empty()) GTEST_SKIP() << "needs a Python with onnxruntime (OCTET_PYTHON)";
  ::setenv("OCTET_PYTHON", python.c_str(), 1);
  ModelBuilder model({3, 12, 20});
  model.weight("stem.weight", {8, 3, 3, 3});
  model.node("Conv", {"image", "stem.weight"}, "a").ints("pads", {1, 1, 1, 1});
  model.node("Relu", {"a"}, "b");
  model.weight("box.weight", {4, 8, 1, 1});
  model.node("Conv", {"b", "box.weight"}, "boxes");
  model.weight("score.weight", {2, 8, 3, 3});
  model.node("Conv", {"b", "score.weight"}, "scores").ints("strides", {2, 2}).ints("pads", {1, 1, 1, 1});
  write("net.onnx", model.bytes(std::vector<std::string>{"boxes", "scores"}));
  for (int i = 0; i < 3; ++i) write_image("images/" + std::to_string(i) + ".png", i, static_cast<uint64_t>(i));
  const json found = parsed({"compare", path("net.onnx"), "--images", path("images"), "--preset", "none", "--against",
                             "onnxruntime,onnxruntime_unfused", "--json", "--device", "cpu"});
  ASSERT_EQ(found.at("outputs").size(), 4u);
  for (const json& output : found.at("outputs")) {
    EXPECT_GT(output.at("signal_to_difference_db"), 100) << output;
    EXPECT_EQ(output.at("same_class"), 1) << output;
  }
}

TEST_F(FloatFile, ValuesThatAreNotOctetsAreNotCompared) {
  ModelBuilder model = colours();
  model.node("Softmax", {"means"}, "shares").integer("axis", 1);
  write("net.onnx", model.bytes("shares"));
  write_image("images/0.png", 0, 1);
  const auto compared = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"compare", path("net.onnx"), "--images", path("images"), "--preset", "none"};
    words.insert(words.end(), more.begin(), more.end());
    return octet(words);
  };
  expect_refusal(compared({"--against", "onnxruntime"}), 2,
                 {"output 'shares' is behind a Softmax or LogSoftmax, which octet leaves out", "--outputs"});
}

}  // namespace
}  // namespace octet::test
