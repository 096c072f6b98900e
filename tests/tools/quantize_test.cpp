// SPDX-License-Identifier: Apache-2.0
// octet quantize: from an ONNX file and images without labels to a checkpoint whose codes are proved.
#include <nlohmann/json.hpp>

#include <functional>
#include <numeric>
#include <set>

#include "src/base/files.h"
#include "src/base/random.h"
#include "src/base/safetensors.h"
#include "src/data/dataset.h"
#include "src/net/checkpoint.h"
#include "src/net/zoo.h"
#include "tests/data/images.h"
#include "tests/net/onnx/model_builder.h"
#include "tests/tools/program.h"

namespace octet::test {
namespace {

/// Two outputs of different shapes, of images that are not square; neither is logits of classes.
std::string two_outputs() {
  ModelBuilder model({3, 12, 20});
  model.weight("stem.weight", {8, 3, 3, 3});
  model.weight("stem.bias", {8});
  model.weight("box.weight", {4, 8, 1, 1});
  model.weight("box.bias", {4});
  model.weight("score.weight", {2, 8, 3, 3});
  model.weight("score.bias", {2});
  model.node("Conv", {"image", "stem.weight", "stem.bias"}, "a").ints("pads", {1, 1, 1, 1});
  model.node("Relu", {"a"}, "b");
  model.node("Conv", {"b", "box.weight", "box.bias"}, "boxes");
  model.node("Conv", {"b", "score.weight", "score.bias"}, "scores").ints("strides", {2, 2}).ints("pads", {1, 1, 1, 1});
  return model.bytes(std::vector<std::string>{"boxes", "scores"});
}

class Quantize : public ToolTest {
 protected:
  void SetUp() override {
    write("net.onnx", two_outputs());
    for (const char* folder : {"images", "bad", "black"}) std::filesystem::create_directory(path(folder));
    for (int i = 0; i < 15; ++i)
      write("images/" + std::to_string(i) + ".png",
            encode_png(testing::noise(16 + i, 24, 3, static_cast<uint64_t>(i))));
  }
  Answer quantize(std::vector<std::string> more) const {
    std::vector<std::string> words = {"quantize", path("net.onnx"), "--images", path("images"), "--device", "cpu"};
    words.insert(words.end(), more.begin(), more.end());
    return octet(words);
  }
  void expect_refused(std::vector<std::string> more, int code, const std::vector<std::string>& parts) const {
    more.insert(more.end(), {"--out", path("refused.safetensors")});
    expect_refusal(quantize(more), code, parts);
    EXPECT_FALSE(std::filesystem::exists(path("refused.safetensors")));
  }
};

TEST_F(Quantize, WritesACheckpointOfTwoOutputsThatEnginesProve) {
  const std::string out = path("int8.safetensors");
  for (int i = 0; i < 5; ++i)  // smaller than the input: a letterbox enlarges them
    write("images/" + std::to_string(i) + ".png", encode_png(testing::noise(9, 24, 3, static_cast<uint64_t>(i))));
  const Answer answer = quantize({"--preset", "yolo", "--out", out, "--html", path("page.html"), "--json"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const auto document = nlohmann::json::parse(answer.out);
  EXPECT_EQ(document.at("images"), (nlohmann::json{{"calibrated", 9}, {"chosen", 3}, {"measured", 3}}));
  EXPECT_EQ(document.at("differing_codes"), 0);
  EXPECT_GT(document.at("codes"), 3 * 12 * 20 * 8);
  ASSERT_EQ(document.at("outputs").size(), 2u);
  EXPECT_EQ(document.at("outputs").at(0).at("output"), "boxes");  // the file's names; the layers are 'box' and 'score'
  EXPECT_EQ(document.at("outputs").at(1).at("output"), "scores");
  for (const auto& output : document.at("outputs")) {
    EXPECT_GT(output.at("sqnr_db"), 25) << output.dump();
    EXPECT_LT(output.at("lost"), 0.01) << output.dump();
  }
  EXPECT_GE(document.at("trials").size(), 4u);
  const Int8Graph graph = read_checkpoint(out);
  EXPECT_EQ(graph.input_shape(), (Shape{3, 12, 20}));
  ASSERT_EQ(graph.outputs.size(), 2u);
  EXPECT_EQ(graph.nodes[static_cast<size_t>(graph.outputs[0])].name, "boxes");
  EXPECT_EQ(graph.nodes[static_cast<size_t>(graph.outputs[1])].name, "scores");
  EXPECT_EQ(graph.preprocessing.fit, Fit::letterbox);
  EXPECT_EQ(graph.preprocessing.order, ChannelOrder::rgb);
  EXPECT_TRUE(graph.preprocessing.exif_orientation);
  expect_part(read_file(path("page.html")), "SQNR of each layer");
  const Answer dumped = octet({"run", out, path("images/0.png"), "--dump", path("codes.safetensors"), "--quiet"});
  EXPECT_EQ(dumped.code, 0) << dumped.err;
}

TEST_F(Quantize, OptionsSayHowImagesAreRead) {
  const std::string out = path("int8.safetensors");
  const Answer answer =
      quantize({"--fit", "stretch", "--order", "bgr", "--mean", "103.53,116.28,123.675", "--std", "51", "--scale",
                "255", "--orientation", "as_stored", "--method", "mse", "--out", out});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const Preprocessing p = read_checkpoint(out).preprocessing;
  EXPECT_EQ(p.fit, Fit::stretch);
  EXPECT_EQ(p.order, ChannelOrder::bgr);
  EXPECT_FALSE(p.exif_orientation);
  ASSERT_EQ(p.mean.size(), 3u);
  EXPECT_FLOAT_EQ(p.mean[0], 0.406f);
  EXPECT_EQ(p.std, std::vector<float>(3, 0.2f));
  expect_part(answer.out, "0 of ");
  expect_part(octet({"inspect", out}).out, "orientation as stored, stretch, bgr, mean 0.406 ");
}

/// Mean and deviation are of pixels in 0..255 with --scale 255, and where the preset's are.
TEST_F(Quantize, ScaleIsThatOfTheNumbersGiven) {
  const auto std_of = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--method", "minmax", "--force", "--quiet", "--out", path("int8.safetensors")});
    const Answer answer = quantize(more);
    EXPECT_EQ(answer.code, 0) << answer.err;
    return read_checkpoint(path("int8.safetensors")).preprocessing.std[0];
  };
  EXPECT_FLOAT_EQ(std_of({"--preset", "none"}), 1);
  EXPECT_FLOAT_EQ(std_of({"--preset", "none", "--scale", "255"}), 1.0f / 255);
  EXPECT_FLOAT_EQ(std_of({"--preset", "yolox"}), 1.0f / 255);
  EXPECT_FLOAT_EQ(std_of({"--preset", "yolox", "--mean", "0"}), 1.0f / 255);
  EXPECT_FLOAT_EQ(std_of({"--preset", "yolox", "--mean", "0", "--std", "1", "--scale", "1"}), 1);
}

TEST_F(Quantize, ImagesThatAreTooSmallOrCutAreLeftOut) {
  write("images/small.png", encode_png(testing::noise(2, 2, 3, 9)));
  write("images/cut.png", encode_png(testing::noise(20, 24, 3, 9)).substr(0, 400));
  const Answer answer = quantize({"--preset", "none", "--method", "minmax", "--out", path("int8.safetensors")});
  ASSERT_EQ(answer.code, 0) << answer.err;
  expect_part(answer.err, "note: 2 images cannot be used and left out: " + path("images/cut.png"));
}

TEST_F(Quantize, RepairsAreTriedAndTakenWhereTheyPay) {
  const Answer answer = quantize({"--preset", "yolo", "--repair", "fast", "--json", "--out", path("int8.safetensors")});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const auto repairs = nlohmann::json::parse(answer.out).at("repairs");
  ASSERT_EQ(repairs.size(), 3u);
  EXPECT_EQ(repairs[0].at("repairs"), "none");
  EXPECT_EQ(repairs[1].at("repairs"), "bias correction");
  EXPECT_LT(repairs[1].at("lost"), 0.01);
  EXPECT_TRUE(repairs[2].at("lost").is_null());  // what the stem gives goes two ways
  expect_part(repairs[2].at("refused").get<std::string>(), "no two layers can be equalized");
}

TEST_F(Quantize, WhatExistsStaysUnlessForced) {
  const std::string out = path("int8.safetensors");
  write("int8.safetensors", "mine");
  const Answer refused = quantize({"--preset", "yolo", "--out", out});
  expect_refusal(refused, 2, {"int8.safetensors exists and stays as it is", "--force"});
  EXPECT_EQ(read_file(out), "mine");
  EXPECT_EQ(quantize({"--preset", "yolo", "--out", out, "--force", "--quiet"}).code, 0);
  EXPECT_NO_THROW(read_checkpoint(out));
}

TEST_F(Quantize, NothingAboutImagesIsGuessed) {
  expect_refused({}, 2, {"how do images become the network's input?", "--preset imagenet", "--mean"});
  expect_refused({"--mean", "0"}, 2, {"how do images become the network's input?"});
  expect_refused({"--preset", "coco"}, 2, {"--preset: 'coco' is none of imagenet, yolo, yolox, none"});
  expect_refused({"--preset", "none", "--mean", "0,0"}, 2, {"--mean: 2 values for an input of 3 channels"});
  expect_refused({"--preset", "yolo", "--resize", "30"}, 2, {"--fit letterbox has none"});
  expect_refused({"--preset", "imagenet", "--mean", "123", "--scale", "255"}, 2,
                 {"--scale says what --mean and --std are of"});
  expect_refused({"--preset", "none", "--std", "0"}, 2, {"--std: 0 is no deviation"});
  expect_refused({"--preset", "none", "--mean", "nan"}, 2, {"--mean: nan is no mean"});
  expect_refused({"--preset", "none", "--percentile", "99"}, 2, {"belongs to --method percentile"});
  expect_refused({"--preset", "none", "--profile", "openvino"}, 2, {"--profile: is how --onnx FILE is written"});
  expect_refused({"--preset", "none", "--html", path("refused.safetensors")}, 2, {"written twice"});
  expect_refused({"--preset", "none", "--force", "--html", path("net.onnx")}, 2, {"net.onnx is read by this command"});
  expect_refused({"--preset", "none", "--profile", "tensorrt", "--onnx", path("a.onnx")}, 2, {"symmetric_s8"});
}

TEST_F(Quantize, ImagesThatCannotServeAreNamed) {
  const auto with = [&](const std::string& images) {
    return octet({"quantize", path("net.onnx"), "--images", images, "--preset", "yolo", "--device", "cpu", "--out",
                  path("refused.safetensors")});
  };
  expect_refusal(with(path("absent")), 3, {"absent: no such file or folder"});
  expect_refusal(with(path("images/0.png")), 3, {"1 image: some are calibrated on", "100 to 300 are usual"});
  write("bad/a.png", "no image");
  expect_refusal(with(path("bad")), 3, {"none of 1 image can be used", "a.png"});
  for (int i = 0; i < 10; ++i)
    write("black/" + std::to_string(i) + ".png",
          encode_png({16, 24, 3, std::vector<uint8_t>(static_cast<size_t>(16) * 24 * 3)}));
  expect_refusal(with(path("black")), 3, {"every image is of one colour"});
  EXPECT_FALSE(std::filesystem::exists(path("refused.safetensors")));
  write("images/broken.png", "no image");
  const Answer answer = with(path("images"));
  EXPECT_EQ(answer.code, 0) << answer.err;
  expect_part(answer.err, "note: 1 image cannot be used and left out: " + path("images/broken.png"));
}

TEST_F(Quantize, AnalyzeShowsWhatEveryLayerCosts) {
  std::vector<std::string> words = {"analyze", path("net.onnx"), "--images", path("images"), "--device", "cpu"};
  expect_refusal(octet(words), 2, {"how do images become the network's input?"});
  words.insert(words.end(), {"--preset", "yolo", "--method", "minmax", "--html", path("page.html"), "--json"});
  const Answer answer = octet(words);
  ASSERT_EQ(answer.code, 0) << answer.err;
  const auto document = nlohmann::json::parse(answer.out);
  EXPECT_EQ(document.at("outputs").at(1).at("output"), "scores");
  std::set<std::string> layers;
  for (const auto& layer : document.at("layers")) {
    layers.insert(layer.at("layer").get<std::string>());
    EXPECT_GT(layer.at("alone_lost"), 0) << layer.dump();
    EXPECT_LT(layer.at("alone_lost"), 0.01) << layer.dump();
  }
  EXPECT_EQ(layers, (std::set<std::string>{"image", "stem", "box", "score"}));
  expect_part(read_file(path("page.html")), "SQNR of each layer");
  EXPECT_FALSE(std::filesystem::exists(path("net.int8.safetensors")));

  expect_refusal(octet({"analyze", path("net.onnx"), "--preset", "yolo"}), 2,
                 {"without --images FOLDER expected a recipe or run, found a float network"});
  write("recipe.yaml", "data: {format: synthetic}\n");
  expect_refusal(octet({"analyze", path("recipe.yaml"), "--preset", "yolo"}), 2, {"a recipe or run says itself"});
  expect_refusal(octet({"analyze", path("recipe.yaml"), "--images", path("images")}), 2, {"a recipe or run says"});
}

/// Weights of a network of the zoo whose BatchNorm is folded into its convolutions, as no option says.
TEST_F(Quantize, FoldedBatchNormIsSeenInTheWeights) {
  const Graph folded = build_model({.name = "resnet8", .input = {3, 32, 32}, .classes = 10, .folded = true});
  TensorFile file;
  Random random({3});
  for (const ParameterSpec& spec : parameters(folded)) {
    const std::vector<int64_t> shape(spec.shape.begin(), spec.shape.end());
    std::vector<float> values(
        static_cast<size_t>(std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>())));
    for (float& value : values) value = static_cast<float>(random.uniform() - 0.5) / 4;
    file.tensors.emplace(spec.name, float_tensor(shape, values.data()));
  }
  write_safetensors(path("folded.safetensors"), file);
  const Answer answer = octet({"quantize", "resnet8", "--weights", path("folded.safetensors"), "--classes", "10",
                               "--image-size", "16", "--images", path("images"), "--preset", "none", "--method",
                               "minmax", "--device", "cpu", "--out", path("int8.safetensors")});
  ASSERT_EQ(answer.code, 0) << answer.err;
  expect_part(answer.err, "folded.safetensors: BatchNorm is folded into the convolutions");
  const Int8Graph graph = read_checkpoint(path("int8.safetensors"));
  EXPECT_EQ(graph.nodes.back().name, "linear");  // a network of the zoo names its outputs itself
  write("recipe.yaml", "data: {format: synthetic, image_size: 32}\nmodel: {name: resnet8, weights: " +
                           path("folded.safetensors") + "}\n");
  expect_refusal(octet({"calibrate", path("recipe.yaml"), "--out", path("other.safetensors")}), 3,
                 {"folded.safetensors: BatchNorm is folded into these convolutions", "set model.folded: true"});
}

/// Whose activations overflow: the layer is named, and no phase of training, which this user has none of.
TEST_F(Quantize, ANetworkThatOverflowsIsRefusedByItsLayer) {
  ModelBuilder model({3, 12, 20});
  model.weight("first.weight", {8, 3, 3, 3}, 1e38f, 2e38f);
  model.weight("second.weight", {8, 8, 3, 3});
  model.node("Conv", {"image", "first.weight"}, "a");
  model.node("Conv", {"a", "second.weight"}, "b");
  write("net.onnx", model.bytes("b"));
  const Answer answer = quantize({"--preset", "yolo", "--out", path("refused.safetensors")});
  expect_refusal(answer, 1, {"'first'", "the float network overflows"});
  EXPECT_EQ(answer.err.find("phase"), std::string::npos) << answer.err;
}

TEST_F(Quantize, NetworksThatCannotServeAreNamed) {
  ModelBuilder pool({3, 12, 20});
  pool.node("GlobalAveragePool", {"image"}, "a");
  write("net.onnx", pool.bytes("a"));
  expect_refused({"--preset", "yolo"}, 2, {"no convolution and no linear layer"});
  write("net.onnx", "not a network");
  expect_refused({"--preset", "yolo"}, 3, {"net.onnx"});
  write("net.onnx", two_outputs());
  expect_refusal(octet({"quantize", "resnet18", "--images", path("images"), "--preset", "imagenet"}), 2,
                 {"resnet18: a network of the zoo needs weights (--weights FILE)"});
  expect_refusal(octet({"quantize", "resnet18", "--images", path("images"), "--preset", "imagenet", "--weights",
                        path("net.onnx"), "--outputs", "fc"}),
                 2, {"resnet18: --outputs is of an ONNX file", "leave it out"});
}

/// No option is without effect and without a word.
TEST_F(Quantize, OptionsThatTheFileAnswersAreRefused) {
  expect_refused({"--preset", "yolo", "--classes", "2"}, 2,
                 {"net.onnx: --classes is of a network of the zoo", "leave it out, or choose among them by --outputs"});
  expect_refused({"--preset", "yolo", "--image-size", "20"}, 2,
                 {"net.onnx: input 'image': takes images of 12x20 (height, width) and no other size",
                  "leave --image-size out", "export the network with open height and width"});
  const Answer inspected = octet({"inspect", path("net.onnx"), "--image-size", "20"});
  expect_refusal(inspected, 2, {"takes images of 12x20 (height, width) and no other size"});
  EXPECT_EQ(inspected.err.find("was tried with"), std::string::npos) << inspected.err;
  for (const int channels : {1, 3}) {
    ModelBuilder square({channels, 12, 12});
    square.weight("w", {8, channels, 3, 3});
    square.node("Conv", {"image", "w"}, "y");
    write("net.onnx", square.bytes("y"));
    if (channels == 1)
      expect_refused({"--preset", "none", "--order", "bgr"}, 2,
                     {"--order bgr: the network takes images of one channel"});
  }
  const Answer same = quantize({"--preset", "yolo", "--image-size", "12", "--method", "minmax", "--out", path("same")});
  EXPECT_EQ(same.code, 0) << same.err;  // the size that the file has anyway
}

}  // namespace
}  // namespace octet::test
