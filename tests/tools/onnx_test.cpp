// SPDX-License-Identifier: Apache-2.0
// A network from an ONNX file through the whole program: inspect, PTQ, QAT, compare.
#include <nlohmann/json.hpp>

#include "src/base/files.h"
#include "src/net/checkpoint.h"
#include "src/net/zoo.h"
#include "src/quant/convert.h"
#include "src/quant/plan.h"
#include "tests/net/onnx/model_builder.h"
#include "tests/tools/program.h"

namespace octet::test {
namespace {

constexpr const char* kRecipe = R"(threads: 1
data: {format: synthetic, channels: 1, image_size: 8, synthetic_size: 96, validation_fraction: 0.2,
  limit_test: 60, synthetic_classes: 4, mean: [0.5], std: [0.25], workers: 1}
model: {name: onnx, onnx: net.onnx}
train: {epochs: 0}
calibrate: {images: 16, batch_size: 8}
qat: {epochs: 0, batch_size: 32, learning_rate: 0.01}
)";

/// Conv and BatchNormalization, Relu, a residual block, and the head that PyTorch writes.
ModelBuilder builder() {
  ModelBuilder model({1, 8, 8});
  model.weight("stem.weight", {8, 1, 3, 3});
  for (const char* name : {"bn.weight", "bn.bias", "bn.running_mean"}) model.weight(name, {8});
  model.weight("bn.running_var", {8}, 0.5f, 1.5f);
  model.weight("block.weight", {8, 8, 3, 3});
  model.weight("block.bias", {8});
  model.weight("fc.weight", {4, 8});
  model.weight("fc.bias", {4});
  model.node("Conv", {"image", "stem.weight"}, "a").ints("pads", {1, 1, 1, 1});
  model.node("BatchNormalization", {"a", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"}, "b");
  model.node("Relu", {"b"}, "c");
  model.node("Conv", {"c", "block.weight", "block.bias"}, "d").ints("pads", {1, 1, 1, 1});
  model.node("Add", {"c", "d"}, "e");
  model.node("Relu", {"e"}, "f");
  model.node("GlobalAveragePool", {"f"}, "g");
  model.node("Flatten", {"g"}, "h");
  model.node("Gemm", {"h", "fc.weight", "fc.bias"}, "logits").integer("transB", 1);
  return model;
}

std::string network() { return builder().bytes("logits"); }

class Onnx : public ToolTest {
 protected:
  void SetUp() override {
    write("net.onnx", network());
    write("recipe.yaml", kRecipe);
  }
  Answer train(const std::string& run, std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"train", path("recipe.yaml"), "--out", path(run), "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    return octet(words);
  }
};

TEST_F(Onnx, InspectSaysWhatWouldBeImported) {
  const Answer answer = octet({"inspect", path("net.onnx")});
  ASSERT_EQ(answer.code, 0) << answer.err;
  for (const char* part :
       {"ONNX opset 17, written by octet's tests", "input [1, 8, 8], output [4, 1, 1]", "stem", "block"})
    expect_part(answer.out, part);
  const auto document = nlohmann::json::parse(octet({"inspect", path("net.onnx"), "--json"}).out);
  EXPECT_EQ(document.at("nodes").at(1).at("name"), "stem");
  EXPECT_EQ(document.at("nodes").back().at("weights"), 36);
  write("torn.onnx", network().substr(0, 700));
  expect_refusal(octet({"inspect", path("torn.onnx")}), 3, {"torn.onnx: damaged, or not an ONNX model"});
}

/// A file that ends in the best class: ended at its logits it is inspected, calibrated and compared like another.
TEST_F(Onnx, ValuesOfTheFileMayBeTheOutputs) {
  ModelBuilder model = builder();
  model.node("ArgMax", {"logits"}, "class").named("best");
  write("net.onnx", model.bytes("class"));
  expect_refusal(octet({"inspect", path("net.onnx")}), 3,
                 {"node 'best' (ArgMax)", "model.outputs: [\"logits\"]", "--outputs logits"});
  const Answer shown = octet({"inspect", path("net.onnx"), "--outputs", "logits"});
  EXPECT_EQ(shown.code, 0) << shown.err;
  expect_part(shown.out, "output [4, 1, 1]");
  EXPECT_EQ(octet({"inspect", path("net.onnx"), "--outputs", "f,logits"}).code, 0);
  const Answer trained = train("cut", {"--set", "model.outputs=[logits]"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(octet({"compare", path("cut"), "--quiet"}).code, 0);
  expect_refusal(octet({"inspect", path("cut"), "--outputs", "logits"}), 2, {"--outputs cuts a float .onnx file"});
}

TEST_F(Onnx, FilesUnderAnothersNameAreNamed) {
  const std::string checkpoint = random_checkpoint();
  std::filesystem::copy(checkpoint, path("int8.onnx"));
  expect_refusal(octet({"inspect", path("int8.onnx")}), 3,
                 {"int8.onnx: a safetensors file, not an ONNX model", "a name that ends in .safetensors"});
  expect_refusal(octet({"run", path("int8.onnx"), "x.png"}), 3, {"int8.onnx: a safetensors file, not an ONNX model"});
  write("int8.bin", network());
  expect_refusal(octet({"inspect", path("int8.bin")}), 3, {"int8.bin: an ONNX file", "octet export FILE.onnx --out"});
}

/// A network's file in the place of a recipe, a run or a checkpoint: what it is, and what takes it; which is done here.
TEST_F(Onnx, NetworksInAnothersPlaceAreNamed) {
  const std::string net = path("net.onnx");
  const std::string cure = "octet train RECIPE --set model.name=onnx --set model.onnx=" + net;
  for (const char* command : {"train", "calibrate"})
    expect_refusal(octet({command, net}), 2, {"net.onnx: expected a recipe, found a float network", cure});
  for (const char* command : {"analyze", "search"}) {
    expect_refusal(octet({command, net}), 2, {"net.onnx: without --images FOLDER expected", "a float network", cure});
    expect_refusal(octet({command, "resnet18"}), 2, {"resnet18: without --images FOLDER", "a network of the zoo"});
    expect_refusal(octet({command, "resnet81", "--images", path(""), "--preset", "none"}), 2,
                   {"resnet81: no such file or run, and no network of the zoo is called so", "resnet18"});
    expect_refusal(octet({command, path("recipe.yaml"), "--images", path("")}), 2,
                   {command + std::string(": a recipe or run says itself"), "leave --images FOLDER out"});
  }
  expect_refusal(octet({"inspect", net, "--stages", "2"}), 2, {"net.onnx: expected a recipe, found a float network"});
  for (const auto& words : {std::vector<std::string>{"run", net, "x.png"}, {"bench", net}})
    expect_refusal(
        octet(words), 3,
        {"net.onnx: a float network; octet quantize " + net + " --images FOLDER", cure, "octet inspect " + net});
  expect_refusal(octet({"export", net, "--out", path("y.safetensors")}), 3,
                 {"net.onnx: a float network; octet quantize " + net, cure});
  expect_refusal(octet({"evaluate", net}), 2, {"net.onnx: is a float network: --images FOLDER", "--preset NAME"});
  expect_refusal(octet({"compare", net}), 2,
                 {"net.onnx: is a float network: it has no codes", "--against onnxruntime", "octet quantize"});

  std::string other = kRecipe;
  const std::string own = "name: onnx, onnx: net.onnx";
  write("other.yaml", other.replace(other.find(own), own.size(), "name: small_cnn"));
  ASSERT_EQ(octet({"train", path("other.yaml"), "--out", path("run"), "--quiet", "--set", "model.name=onnx", "--set",
                   "model.onnx=" + net, "--set", "train.epochs=0"})
                .code,
            0);
  ASSERT_EQ(octet({"inspect", net}).code, 0);

  const std::string quantized = path("quantized.onnx"), checkpoint = path("again.safetensors");
  ASSERT_EQ(octet({"export", path("run"), "--onnx", quantized}).code, 0);
  for (const char* command : {"train", "calibrate", "analyze", "search"})
    expect_refusal(octet({command, quantized}), 2,
                   {"found a quantized network, which is not trained; octet run and bench take it, octet export "});
  EXPECT_EQ(octet({"export", quantized, "--out", checkpoint}).code, 0);
  EXPECT_EQ(octet({"bench", quantized, "--seconds", "0.01"}).code, 0);

  expect_refusal(octet({"train", checkpoint}), 2,
                 {"again.safetensors: expected a recipe, found a safetensors file",
                  "octet run and inspect take an int8 checkpoint"});
  ASSERT_EQ(octet({"inspect", checkpoint}).code, 0);
  write("weights.pth", "PK\x03\x04" + std::string(100, 'x'));
  expect_refusal(octet({"train", path("weights.pth")}), 2,
                 {"expected a recipe, found weights of PyTorch", "--set model.weights=" + path("weights.pth")});
  expect_refusal(octet({"run", path("weights.pth"), "x.png"}), 3, {"weights of PyTorch, not safetensors"});
  const std::string float_weights = path("run/float.safetensors");
  expect_refusal(octet({"run", float_weights, "x.png"}), 3,
                 {"float.safetensors: a safetensors file, but no octet checkpoint", "as model.weights"});
  EXPECT_EQ(train("weights", {"--set", "model.weights=" + float_weights}).code, 0);
}

/// A network that takes mean and deviation off itself answers as one that has them in the recipe.
TEST_F(Onnx, AFileMayNormalizeItsImagesItself) {
  ASSERT_EQ(train("plain").code, 0);
  for (const bool bytes : {false, true}) {
    ModelBuilder model = builder();
    model.scalar("most", 255);
    model.scalar("mean", 0.5f);
    model.reals("deviation", {0.25f});
    model.prepend("Div", "deviation");
    model.prepend("Sub", "mean");
    if (bytes) model.prepend("Div", "most");
    write("net.onnx", model.bytes("logits"));
    const std::string run = bytes ? "bytes" : "unit";
    const Answer trained =
        train(run, {"--set", "data.mean=[0]", "--set", bytes ? "data.std=[0.003921569]" : "data.std=[1]"});
    ASSERT_EQ(trained.code, 0) << trained.err;
    const auto loss = [&](const std::string& of) {
      const auto report = nlohmann::json::parse(read_file(path(of + "/report.json")));
      return report.at("rows").at(0).at("loss").get<double>();
    };
    EXPECT_NEAR(loss(run), loss("plain"), 1e-4);
  }
}

/// Height and width are the recipe's where the file leaves them open.
TEST_F(Onnx, AnOpenSizeIsTheRecipes) {
  ModelBuilder model = builder();
  model.leave_size_open();
  write("net.onnx", model.bytes("logits"));
  expect_refusal(octet({"inspect", path("net.onnx")}), 3, {"its height is open", "--image-size SIZE"});
  const Answer shown = octet({"inspect", path("net.onnx"), "--image-size", "12"});
  EXPECT_EQ(shown.code, 0) << shown.err;
  expect_part(shown.out, "input [1, 12, 12]");
  ASSERT_EQ(train("open").code, 0);
  EXPECT_EQ(octet({"compare", path("open"), "--quiet"}).code, 0);
  expect_refusal(octet({"inspect", path("open"), "--image-size", "12"}), 2, {"--image-size is for an .onnx file"});
}

TEST_F(Onnx, OptionsThatWouldChangeNothingAreRefused) {
  const std::string checkpoint = random_checkpoint();
  expect_refusal(octet({"export", checkpoint, "--onnx", path("y.onnx"), "--float", "--profile", "openvino"}), 2,
                 {"--profile is how an int8 network is written", "leave one out"});
  expect_refusal(octet({"export", checkpoint, "--onnx", path("y.onnx"), "--set", "seed=1"}), 2,
                 {"--set changes nothing"});
  expect_refusal(octet({"export", path("net.onnx"), "--out", path("y.safetensors"), "--set", "seed=1"}), 2,
                 {"--set changes nothing"});
}

TEST_F(Onnx, HelpSaysWhereFilesAreTaken) {
  for (const char* command : {"run", "bench", "compare", "evaluate"})
    expect_part(octet({command, "--help"}).out, "a quantized .onnx file");
}

TEST_F(Onnx, NamesInMessagesHaveNoControlCharacters) {
  ModelBuilder model({1, 8, 8});
  model.node("Loop\x1b]0;owned\a", {"image"}, "out\r\x1b[2J").named("no\x1b[31mde");
  write("evil.onnx", model.bytes("out\r\x1b[2J"));
  expect_refusal(octet({"inspect", path("evil.onnx")}), 3, {"no?[31mde", "Loop?]0;owned?"});
}

TEST_F(Onnx, PtqAndQatGiveTheSameCodesEverywhere) {
  for (const char* epochs : {"qat.epochs=0", "qat.epochs=1"}) {
    const Answer trained = train(epochs, {"--set", epochs});
    ASSERT_EQ(trained.code, 0) << trained.err;
    const Answer compared = octet({"compare", path(epochs), "--quiet"});
    EXPECT_EQ(compared.code, 0) << compared.out << compared.err;
  }
  const auto layers = nlohmann::json::parse(octet({"inspect", path("qat.epochs=0"), "--json"}).out).at("nodes");
  EXPECT_EQ(layers.at(1).at("name"), "stem");
}

TEST_F(Onnx, SeveralOutputsGoOutAndComeBack) {
  Int8Graph graph = read_checkpoint(random_checkpoint());
  graph.class_names.clear();
  graph.outputs.push_back(1);  // codes
  write_checkpoint(path("two.safetensors"), graph);
  const Answer exported = octet({"export", path("two.safetensors"), "--onnx", path("two.onnx")});
  ASSERT_EQ(exported.code, 0) << exported.err;
  const Answer back = octet({"export", path("two.onnx"), "--out", path("back.safetensors")});
  ASSERT_EQ(back.code, 0) << back.err;
  EXPECT_EQ(read_checkpoint(path("back.safetensors")).outputs, graph.outputs);
}

TEST_F(Onnx, AnotherImageSizeIsTakenWithAWord) {
  EXPECT_EQ(train("size", {"--set", "data.image_size=16"}).code, 0);
  const std::string note = "images of 8x8 in the file, of 16x16 in octet's network";
  expect_part(octet({"inspect", path("net.onnx"), "--image-size", "16"}).out, note);
}

/// Names of a run, of its checkpoint wherever it lies, and of its float network.
TEST_F(Onnx, WhatIsExportedHasTheFilesNames) {
  ModelBuilder model = builder();
  model.node("Identity", {"logits"}, "scores");
  write("net.onnx", model.bytes("scores"));
  ASSERT_EQ(train("run").code, 0);
  std::filesystem::copy(path("run/int8.safetensors"), path("moved.safetensors"));
  const auto ends = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "export");
    words.insert(words.end(), {"--onnx", path("out.onnx"), "--quiet"});
    const Answer answer = octet(words);
    EXPECT_EQ(answer.code, 0) << answer.err;
    return ends_of(read_file(path("out.onnx")));
  };
  const std::pair<std::string, std::string> own = {"image", "scores"};
  EXPECT_EQ(ends({path("run")}), own);
  EXPECT_EQ(ends({path("moved.safetensors")}), own);
  EXPECT_EQ(ends({path("run"), "--float"}), own);
  ASSERT_EQ(octet({"export", path("run"), "--out", path("again.safetensors")}).code, 0);
  EXPECT_EQ(read_file(path("again.safetensors")), read_file(path("moved.safetensors")));
}

TEST_F(Onnx, ARunSaysItselfHowImagesBecomeItsInput) {
  ASSERT_EQ(train("run").code, 0);
  for (const char* command : {"evaluate", "compare"})
    expect_refusal(octet({command, path("run"), "--preset", "none"}), 2, {"--preset: is for a float .onnx file"});
}

TEST_F(Onnx, WhatDoesNotFitTheDataIsRefused) {
  expect_refusal(train("classes", {"--set", "data.synthetic_classes=5"}), 2, {"gives 'fc' [4, 1, 1]", "5 classes"});
  expect_refusal(train("name", {"--set", "model.onnx=other.onnx"}), 3, {"other.onnx"});
}

TEST_F(Onnx, InspectHoldsQuantizedFilesToTensorRtsRules) {
  const Int8Graph graph =
      random_int8_graph(fuse(build_model({.name = "resnet8"})), {.activation = ActivationScheme::symmetric_s8}, 1);
  write_checkpoint(path("int8.safetensors"), graph);
  const auto exported = [&](const std::string& file, const std::string& profile) {
    return octet({"export", path("int8.safetensors"), "--onnx", path(file), "--profile", profile}).code;
  };
  ASSERT_EQ(exported("int8.onnx", "tensorrt"), 0);
  const Answer kept = octet({"inspect", path("int8.onnx"), "--rules", "tensorrt"});
  EXPECT_EQ(kept.code, 0) << kept.err;
  expect_part(kept.out, "int8.onnx: keeps TensorRT's rules");
  ASSERT_EQ(exported("biases.onnx", "int32_bias"), 0);
  const Answer broken = octet({"inspect", path("biases.onnx"), "--rules", "tensorrt"});
  EXPECT_EQ(broken.code, 3);
  expect_part(broken.out, "biases.onnx: breaks TensorRT's rules");
  expect_part(broken.out, "\nnode 'conv1.bias' (DequantizeLinear): gives a bias, of INT32 codes");
  const Answer json = octet({"inspect", path("biases.onnx"), "--rules", "tensorrt", "--json"});
  EXPECT_EQ(json.code, 3);
  EXPECT_EQ(nlohmann::json::parse(json.out).at("faults").size(), 1u);
  expect_refusal(octet({"inspect", path("net.onnx"), "--rules", "tensorrt"}), 3, {"net.onnx: has no QuantizeLinear"});
  expect_refusal(octet({"inspect", path("int8.onnx"), "--rules", "openvino"}), 2, {"--rules", "tensorrt"});
  expect_refusal(octet({"inspect", path("int8.onnx"), "--rules", "tensorrt", "--outputs", "a"}), 2,
                 {"--rules is for a quantized .onnx file"});
}

}  // namespace
}  // namespace octet::test
