// SPDX-License-Identifier: Apache-2.0
#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>

#include "src/base/error.h"
#include "src/base/safetensors.h"
#include "src/net/zoo.h"
#include "src/train/model/model.h"
#include "tests/error_of.h"

namespace octet {
namespace {

Graph resnet8(int classes = 10) {
  ModelSpec spec;
  spec.name = "resnet8";
  spec.classes = classes;
  return build_model(spec);
}

class WeightsFile : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = (std::filesystem::temp_directory_path() /
             ("octet_" + std::to_string(::getpid()) + "_" + info->name() + ".safetensors"))
                .string();
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::string path_;
};

TEST(InitialWeights, DependOnTheSeedOnly) {
  const Graph graph = resnet8();
  const Weights a = initial_weights(graph, 1);
  at::manual_seed(99);  // the global generator has no part in it
  const Weights b = initial_weights(graph, 1), c = initial_weights(graph, 2);
  ASSERT_EQ(a.size(), parameters(graph).size());
  for (const auto& [name, t] : a) EXPECT_TRUE(at::equal(t, b.at(name))) << name;
  EXPECT_FALSE(at::equal(a.at("conv1.weight"), c.at("conv1.weight")));
}

TEST(InitialWeights, KaimingFanOut) {
  ModelSpec spec;
  spec.name = "mobilenet_v2";
  spec.input = {3, 32, 32};
  const Graph graph = build_model(spec);
  const Weights weights = initial_weights(graph, 1);
  for (const Node& node : graph.nodes) {
    if (node.op != Op::conv2d) continue;
    const at::Tensor w = weights.at(node.name + ".weight");
    const double expected =
        std::sqrt(2.0 / (1.0 * node.out_channels / node.groups * node.window.kernel_h * node.window.kernel_w));
    const double measured = w.std().item<double>();
    EXPECT_NEAR(measured / expected, 1, 6 / std::sqrt(2.0 * w.numel())) << node.name;
    EXPECT_TRUE(w.requires_grad());
  }
  EXPECT_FALSE(weights.at("features.0.1.running_var").requires_grad());
}

TEST_F(WeightsFile, RoundTrip) {
  const Graph graph = resnet8();
  Weights a = initial_weights(graph, 1), b = initial_weights(graph, 2);
  a.at("conv1.weight").set_data(a.at("conv1.weight").contiguous(at::MemoryFormat::ChannelsLast));
  save_weights(a, path_);
  const LoadReport report = load_weights(b, graph, path_);
  EXPECT_TRUE(report.unexpected.empty());
  for (const auto& [name, t] : a) EXPECT_TRUE(at::equal(t, b.at(name))) << name;
}

TEST_F(WeightsFile, StripsModuleAndReportsUnexpected) {
  const Graph graph = resnet8();
  const Weights a = initial_weights(graph, 1);
  Weights renamed;
  for (const auto& [name, t] : a) renamed["module." + name] = t;
  renamed["module.bn1.num_batches_tracked"] = at::zeros({1});
  renamed["extra.weight"] = at::zeros({2});
  save_weights(renamed, path_);
  Weights b = initial_weights(graph, 2);
  const LoadReport report = load_weights(b, graph, path_);
  EXPECT_EQ(report.unexpected, std::vector<std::string>{"extra.weight"});
  EXPECT_TRUE(at::equal(a.at("conv1.weight"), b.at("conv1.weight")));
}

TEST_F(WeightsFile, StripsTheNamesOfWrappers) {
  const Graph graph = resnet8();
  const Weights a = initial_weights(graph, 1);
  for (const std::string wrapper :
       {"_orig_mod.", "model.", "module._orig_mod.", "_orig_mod.module.", "model.module."}) {
    Weights renamed;
    for (const auto& [name, t] : a) renamed[wrapper + name] = t;
    renamed["n_averaged"] = at::zeros({1});
    save_weights(renamed, path_);
    Weights b = initial_weights(graph, 2);
    EXPECT_TRUE(load_weights(b, graph, path_).unexpected.empty()) << wrapper;
    for (const auto& [name, t] : a) ASSERT_TRUE(at::equal(t, b.at(name))) << wrapper << name;
  }
}

/// A network whose own names begin as a wrapper's do keeps them, and the plain name is taken before the wrapped one.
TEST_F(WeightsFile, ANameOfTheNetworkIsNotStripped) {
  ModelSpec spec;
  spec.name = "graph";
  spec.input = {3, 8, 8};
  spec.classes = 2;
  spec.graph = {{"model.conv", "conv2d", {}, {{"out_channels", 4}, {"kernel", 3}}},
                {"pool", "global_avg_pool", {}, {}},
                {"flat", "flatten", {}, {}},
                {"fc", "linear", {}, {{"out_channels", 2}}}};
  const Graph graph = build_model(spec);
  const Weights a = initial_weights(graph, 1);
  ASSERT_TRUE(a.contains("model.conv.weight"));
  Weights saved = a;
  saved["model.fc.weight"] = at::zeros({2, 4});  // of another network in the same file
  save_weights(saved, path_);
  Weights b = initial_weights(graph, 2);
  EXPECT_EQ(load_weights(b, graph, path_).unexpected, std::vector<std::string>{"model.fc.weight"});
  for (const auto& [name, t] : a) EXPECT_TRUE(at::equal(t, b.at(name))) << name;
}

TEST_F(WeightsFile, NewLayersStayAsTheyBegan) {
  const Graph graph = resnet8();
  const Weights a = initial_weights(resnet8(7), 1), before = initial_weights(graph, 2);
  save_weights(a, path_);
  Weights b = initial_weights(graph, 2);
  EXPECT_TRUE(load_weights(b, graph, path_, {"lin*"}).unexpected.empty());
  for (const auto& [name, t] : b)
    EXPECT_TRUE(at::equal(t, (name.starts_with("linear.") ? before : a).at(name))) << name;
  EXPECT_NE(error_of([&] {
              load_weights(b, graph, path_, {"linear", "fc"});
            }).find("model.new_layers: 'fc' is no"),
            std::string::npos);
  EXPECT_NE(error_of([&] { load_weights(b, graph, path_, {"conv1"}); }).find("name layers that are to begin at random"),
            std::string::npos);
}

/// torchvision's file of a classifier gives the backbone of a network of segmentation its weights.
TEST_F(WeightsFile, FeaturesAreTheBackboneOfSegmentation) {
  const Graph classifier = build_model({.name = "mobilenet_v2", .input = {3, 64, 64}, .classes = 5});
  const Graph graph = build_model({.name = "lraspp_mobilenet_v2", .input = {3, 64, 64}, .classes = 3});
  const Weights a = initial_weights(classifier, 1);
  save_weights(a, path_);
  Weights b = initial_weights(graph, 2);
  const LoadReport report = load_weights(b, graph, path_, {"classifier.*"});
  EXPECT_TRUE(at::equal(b.at("backbone.17.conv.2.weight"), a.at("features.17.conv.2.weight")));
  for (const std::string& name : report.unexpected) EXPECT_TRUE(name.starts_with("features.18.")) << name;
  EXPECT_EQ(report.unexpected.size(), 5u);
}

TEST_F(WeightsFile, ListsAllThatDoesNotFitAndChangesNothing) {
  const Graph graph = resnet8();
  Weights a = initial_weights(resnet8(7), 1);
  a.erase("bn1.bias");
  save_weights(a, path_);
  Weights b = initial_weights(graph, 2);
  const at::Tensor before = b.at("conv1.weight").clone();
  try {
    load_weights(b, graph, path_);
    FAIL() << "accepted weights of another network";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_NE(message.find(path_), std::string::npos);
    EXPECT_NE(message.find("missing: bn1.bias"), std::string::npos) << message;
    EXPECT_NE(message.find("[7, 64], the network needs [10, 64]"), std::string::npos) << message;
  }
  EXPECT_TRUE(at::equal(before, b.at("conv1.weight")));
}

TEST_F(WeightsFile, NamesTheTensorThatIsNoNumberAndLeavesWeightsAlone) {
  const Graph graph = resnet8();
  const auto refused = [&](const std::string& name, float value) {
    Weights a = initial_weights(graph, 1), b = initial_weights(graph, 2);
    a.at(name).detach().view({-1})[3] = value;
    save_weights(a, path_);
    const at::Tensor before = b.at("conv1.weight").clone();
    try {
      load_weights(b, graph, path_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      EXPECT_TRUE(at::equal(before, b.at("conv1.weight")));
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refused("linear.bias", std::nanf("")).find(path_ + ": tensor 'linear.bias' holds nan at [3];"), 0u)
      << refused("linear.bias", std::nanf(""));
  EXPECT_EQ(refused("conv1.weight", -INFINITY).find(path_ + ": tensor 'conv1.weight' holds -inf at [0, 0, 1, 0];"), 0u)
      << refused("conv1.weight", -INFINITY);
  EXPECT_EQ(refused("bn1.running_var", -0.5f).find(path_ + ": tensor 'bn1.running_var' holds -0.5 at [3], and a "), 0u)
      << refused("bn1.running_var", -0.5f);
  EXPECT_EQ(refused("bn1.running_mean", -0.5f), "accepted");
}

/// YOLOX's first layer: four interleaved quarters of the image, one behind the other, under a convolution of 3x3.
TEST_F(WeightsFile, FocusIsReadAsAStridedConvolution) {
  const Graph graph = build_model({.name = "yolox_nano", .input = {3, 32, 64}, .classes = 2});
  const std::string stem = "backbone.backbone.stem.conv.conv.weight";
  Weights theirs = initial_weights(graph, 1), ours = initial_weights(graph, 2);
  theirs[stem] = at::randn({16, 12, 3, 3});
  save_weights(theirs, path_);
  EXPECT_TRUE(load_weights(ours, graph, path_).unexpected.empty());
  const c10::NoGradGuard no_grad;
  const at::Tensor x = at::randn({2, 3, 32, 64}).to(at::kDouble);
  const auto quarter = [&](int y, int left) { return x.slice(2, y, 32, 2).slice(3, left, 64, 2); };
  const at::Tensor quarters = at::cat({quarter(0, 0), quarter(1, 0), quarter(0, 1), quarter(1, 1)}, 1);
  const at::Tensor expected = at::conv2d(quarters, theirs[stem].to(at::kDouble), {}, 1, 1);
  const at::Tensor found = at::conv2d(x, ours.at(stem).to(at::kDouble), {}, 2, 2);
  EXPECT_TRUE(at::allclose(found, expected, 1e-9, 1e-9));
  theirs[stem] = at::randn({16, 12, 5, 3});
  save_weights(theirs, path_);
  EXPECT_NE(error_of([&] { load_weights(ours, graph, path_); }).find(stem + " is [16, 12, 5, 3]"), std::string::npos);
}

TEST(LoadWeights, RefusesOtherFiles) {
  const Graph graph = resnet8();
  Weights weights = initial_weights(graph, 1);
  EXPECT_THROW(load_weights(weights, graph, "weights.onnx"), Error);
  EXPECT_THROW(load_weights(weights, graph, "/nonexistent/weights.safetensors"), Error);
}

}  // namespace
}  // namespace octet
