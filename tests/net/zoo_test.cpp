// SPDX-License-Identifier: Apache-2.0
// The model zoo against published parameter counts and against the names in real weight files.
#include "src/net/zoo.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "src/base/safetensors.h"
#include "src/net/int8_graph.h"
#include "tests/net/test_graphs.h"

namespace octet {
namespace {

using Shapes = std::map<std::string, std::vector<int64_t>>;

Graph cifar(const std::string& name, char shortcut = 'B') { return build_model({.name = name, .shortcut = shortcut}); }

Graph imagenet(const std::string& name) { return build_model({.name = name, .input = {3, 224, 224}, .classes = 1000}); }

long trainable(const Graph& graph) {
  long total = 0;
  for (const ParameterSpec& spec : parameters(graph)) {
    if (!spec.trainable()) continue;
    long elements = 1;
    for (const long dimension : spec.shape) elements *= dimension;
    total += elements;
  }
  return total;
}

Shapes parameter_shapes(const Graph& graph) {
  Shapes shapes;
  for (const ParameterSpec& spec : parameters(graph)) shapes[spec.name] = {spec.shape.begin(), spec.shape.end()};
  return shapes;
}

TEST(Zoo, PublishedParameterCounts) {
  // akamaster/pytorch_resnet_cifar10 (option A: the shortcut has no parameters)
  EXPECT_EQ(trainable(cifar("resnet20", 'A')), 269'722);
  EXPECT_EQ(trainable(cifar("resnet32", 'A')), 464'154);
  EXPECT_EQ(trainable(cifar("resnet44", 'A')), 658'586);
  EXPECT_EQ(trainable(cifar("resnet56", 'A')), 853'018);
  // option B: 1x1 convolutions 16 -> 32 and 32 -> 64 with BatchNorm on top
  EXPECT_EQ(trainable(cifar("resnet20", 'B')), 269'722 + 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64);
  // Page's convolutions, his BatchNorms (2,240 channels), and a last layer that here has a bias
  EXPECT_EQ(trainable(cifar("resnet9")),
            27 * 64 + 9 * (64 * 128 + 2 * 128 * 128 + 128 * 256 + 256 * 512 + 2 * 512 * 512) + 2 * 2'240 + 513 * 10);
  // torchvision's model table
  EXPECT_EQ(trainable(imagenet("resnet18")), 11'689'512);
  EXPECT_EQ(trainable(imagenet("resnet34")), 21'797'672);
  EXPECT_EQ(trainable(imagenet("resnet50")), 25'557'032);
  EXPECT_EQ(trainable(imagenet("mobilenet_v2")), 3'504'872);
  EXPECT_EQ(trainable(imagenet("mobilenet_v3_large")), 5'483'032);
  EXPECT_EQ(trainable(imagenet("efficientnet_b0")), 5'288'548);
  EXPECT_EQ(trainable(imagenet("shufflenet_v2_x0_5")), 1'366'792);
  EXPECT_EQ(trainable(imagenet("shufflenet_v2_x1_0")), 2'278'604);
  EXPECT_EQ(trainable(imagenet("squeezenet1_1")), 1'235'496);
  EXPECT_EQ(trainable(imagenet("vgg11_bn")), 132'868'840);
  EXPECT_EQ(trainable(imagenet("vgg16_bn")), 138'365'992);
}

TEST(Zoo, MultiplyAdds) {
  EXPECT_NEAR(multiply_adds(cifar("resnet20", 'A')) / 1e6, 40.55, 0.01);
  EXPECT_NEAR(multiply_adds(cifar("resnet9")) / 1e6, 1.77 + 5 * 75.50, 0.01);
  EXPECT_NEAR(multiply_adds(imagenet("resnet50")) / 1e9, 4.089, 0.001);              // torchvision: 4.09
  EXPECT_NEAR(multiply_adds(imagenet("mobilenet_v2")) / 1e9, 0.3008, 0.0001);        // torchvision: 0.30
  EXPECT_NEAR(multiply_adds(imagenet("mobilenet_v3_large")) / 1e9, 0.2166, 0.0001);  // torchvision: 0.22
  EXPECT_NEAR(multiply_adds(imagenet("efficientnet_b0")) / 1e9, 0.3859, 0.0001);     // torchvision: 0.39
  const Graph small = build_model({.name = "small_cnn", .input = {1, 28, 28}});
  EXPECT_GT(multiply_adds(small), 3'000'000);
  EXPECT_LT(multiply_adds(small), 5'000'000);
}

TEST(Zoo, EveryModelBuildsForSmallAndLargeImages) {
  for (const std::string_view name : model_names()) {
    for (const int size : {32, 224}) {
      for (const bool folded : {false, true}) {
        const Graph graph = build_model(
            {.name = std::string(name), .input = {3, size, size}, .classes = 7, .folded = folded, .dropout = 0.25});
        const Shape& answers = graph.nodes[graph.outputs.front()].shape;
        const bool pixels = name.starts_with("unet") || name.starts_with("lraspp");
        if (name.starts_with("yolox")) {
          EXPECT_EQ(graph.outputs.size(), 9U) << name;
          EXPECT_EQ(answers, (Shape{7, size / 8, size / 8})) << name << " " << size;
          continue;
        }
        EXPECT_EQ(answers, (pixels ? Shape{7, size, size} : Shape{7, 1, 1})) << name << " " << size;
        for (const Node& node : graph.nodes) EXPECT_FALSE(folded && node.op == Op::batch_norm) << name;
      }
    }
  }
}

TEST(Zoo, CifarStemKeepsTheResolution) {
  EXPECT_EQ(cifar("resnet18").nodes[1].shape, (Shape{64, 32, 32}));
  EXPECT_EQ(imagenet("resnet18").nodes[1].shape, (Shape{64, 112, 112}));
  const auto before_pool = [](const Graph& graph) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (graph.nodes[i].name == "avgpool") return graph.nodes[i - 1].shape;
    }
    return Shape{};
  };
  EXPECT_EQ(before_pool(cifar("mobilenet_v2")), (Shape{1280, 4, 4}));
  EXPECT_EQ(before_pool(imagenet("mobilenet_v2")), (Shape{1280, 7, 7}));
  EXPECT_EQ(before_pool(cifar("resnet18")), (Shape{512, 4, 4}));
  EXPECT_EQ(before_pool(cifar("mobilenet_v3_large")), (Shape{960, 4, 4}));
  EXPECT_EQ(before_pool(imagenet("mobilenet_v3_large")), (Shape{960, 7, 7}));
  EXPECT_EQ(before_pool(cifar("efficientnet_b0")), (Shape{1280, 4, 4}));
  EXPECT_EQ(before_pool(imagenet("efficientnet_b0")), (Shape{1280, 7, 7}));
  const Graph forced = build_model({.name = "resnet18", .stem = "imagenet"});
  EXPECT_EQ(forced.nodes[1].shape, (Shape{64, 16, 16}));
}

/// Sizes and channels by hand: 64 at the image's resolution, twice as many after each halving, an eighth by width.
TEST(Zoo, UnetComesBackToTheImage) {
  const Graph graph = build_model({.name = "unet2", .input = {3, 64, 48}, .classes = 2, .width = 0.125});
  const auto shape = [&](std::string_view name) {
    for (const Node& node : graph.nodes)
      if (node.name == name) return node.shape;
    ADD_FAILURE() << name;
    return Shape{};
  };
  EXPECT_EQ(shape("down0.1.relu"), (Shape{8, 64, 48}));
  EXPECT_EQ(shape("down1.1.relu"), (Shape{16, 32, 24}));
  EXPECT_EQ(shape("bottom.1.relu"), (Shape{32, 16, 12}));
  EXPECT_EQ(shape("up1.grow.relu"), (Shape{16, 32, 24}));
  EXPECT_EQ(shape("up1.concat"), (Shape{32, 32, 24}));
  EXPECT_EQ(shape("up0.concat"), (Shape{16, 64, 48}));
  EXPECT_EQ(shape("head"), (Shape{2, 64, 48}));
  EXPECT_EQ(graph.outputs, (std::vector<int>{static_cast<int>(graph.nodes.size()) - 1}));
  EXPECT_NE(error_of([] {
              build_model({.name = "unet", .input = {3, 56, 64}});
            }).find("unet halves the image 4 times, so 16 must divide its height and width, 56x64"),
            std::string::npos);
}

/// torchvision's table: 3,221,538 parameters for 21 classes.
TEST(Zoo, LrasppIsTorchvisions) {
  const ModelSpec spec{.name = "lraspp_mobilenet_v3_large", .input = {3, 368, 480}, .classes = 21};
  const Graph graph = build_model(spec);
  EXPECT_EQ(trainable(graph), 3'221'538);
  const Shapes shapes = parameter_shapes(graph);
  EXPECT_EQ(shapes.at("backbone.13.block.1.0.weight"), (std::vector<int64_t>{672, 1, 5, 5}));
  EXPECT_EQ(shapes.at("classifier.scale.1.weight"), (std::vector<int64_t>{128, 960, 1, 1}));
  EXPECT_EQ(shapes.at("classifier.low_classifier.weight"), (std::vector<int64_t>{21, 40, 1, 1}));
  std::map<std::string, Node> nodes;
  for (const Node& node : graph.nodes) nodes[node.name] = node;
  EXPECT_EQ(nodes.at("backbone.16.2").shape, (Shape{960, 23, 30}));
  EXPECT_EQ(nodes.at("backbone.12.block.1.0").window.dilation_h, 1);
  EXPECT_EQ(nodes.at("backbone.15.block.1.0").window.dilation_w, 2);
  EXPECT_EQ(nodes.at("classifier.add").shape, (Shape{21, 46, 60}));
  EXPECT_EQ(graph.nodes.back().shape, (Shape{21, 368, 480}));
  const Graph second = build_model({.name = "lraspp_mobilenet_v2", .input = {3, 64, 64}, .classes = 11});
  EXPECT_EQ(parameter_shapes(second).at("classifier.low_classifier.weight"), (std::vector<int64_t>{11, 32, 1, 1}));
  EXPECT_EQ(parameter_shapes(second).at("classifier.cbr.0.weight"), (std::vector<int64_t>{128, 320, 1, 1}));
  EXPECT_NE(error_of([] {
              build_model({.name = "lraspp_mobilenet_v2", .input = {3, 360, 480}});
            }).find("so 16 must divide its height and width, 360x480; data.fit: letterbox"),
            std::string::npos);
}

/// The table of Megvii-BaseDetection/YOLOX gives millions of parameters and 10^9 operations, two a multiply-add, at
/// 416, 416 and 640 pixels: 0.91 and 1.08, 5.06 and 6.45, 9.0 and 26.8.
TEST(Zoo, YoloxHasThePublishedSizes) {
  const auto network = [](const std::string& name, int size, int classes = 80) {
    return build_model({.name = name, .input = {3, size, size}, .classes = classes});
  };
  EXPECT_NEAR(trainable(network("yolox_nano", 416)) / 1e6, 0.91, 0.005);
  EXPECT_NEAR(trainable(network("yolox_tiny", 416)) / 1e6, 5.06, 0.005);
  EXPECT_NEAR(trainable(network("yolox_s", 640)) / 1e6, 9.0, 0.05);
  const auto expect_operations = [&](const std::string& name, int size, double published) {
    const double ours = 2 * multiply_adds(network(name, size)) / 1e9;
    EXPECT_GT(ours, 0.96 * published) << name;
    EXPECT_LT(ours, published) << name;
  };
  expect_operations("yolox_nano", 416, 1.08);
  expect_operations("yolox_tiny", 416, 6.45);
  expect_operations("yolox_s", 640, 26.8);
}

TEST(Zoo, YoloxHasAHeadOfThreeStrides) {
  const Graph graph = build_model({.name = "yolox_nano", .input = {3, 96, 64}, .classes = 3});
  const Shapes shapes = parameter_shapes(graph);
  EXPECT_EQ(shapes.at("backbone.backbone.stem.conv.conv.weight"), (std::vector<int64_t>{16, 3, 6, 6}));
  EXPECT_EQ(shapes.at("backbone.backbone.dark2.0.dconv.conv.weight"), (std::vector<int64_t>{16, 1, 3, 3}));
  EXPECT_EQ(shapes.at("backbone.C3_n4.m.0.conv2.pconv.conv.weight"), (std::vector<int64_t>{128, 128, 1, 1}));
  EXPECT_EQ(shapes.at("head.cls_preds.2.weight"), (std::vector<int64_t>{3, 64, 1, 1}));
  const BoxHead head = find_box_head(graph, BoxHeadKind::yolox);
  ASSERT_EQ(head.levels.size(), 3U);
  for (int level = 0; level < 3; ++level)
    EXPECT_EQ(head.levels[level], (BoxHead::Level{8 << level, 3 * level + 1, 3 * level + 2, 3 * level}));
  EXPECT_NE(error_of([] {
              build_model({.name = "yolox_s", .input = {3, 416, 400}});
            }).find("yolox_s takes images whose sides are multiples of 32, not 416x400"),
            std::string::npos);
}

TEST(Zoo, WidthScalesInEights) {
  const Graph narrow = build_model({.name = "mobilenet_v2", .input = {3, 224, 224}, .classes = 1000, .width = 0.5});
  EXPECT_EQ(trainable(narrow), 1'968'680);  // torchvision mobilenet_v2(width_mult=0.5)
}

TEST(Zoo, RefusesUnknownNamesAndSizes) {
  EXPECT_NE(error_of([] { build_model({.name = "resnt20"}); }).find("did you mean 'resnet20'"), std::string::npos);
  EXPECT_NE(error_of([] { build_model({.name = "resnet20", .shortcut = 'C'}); }).find("'C'"), std::string::npos);
  EXPECT_NE(error_of([] { build_model({.name = "lraspp_mobilenet_v2", .stem = "cifar"}); }).find("imagenet stem alone"),
            std::string::npos);
  EXPECT_NE(error_of([] { build_model({.name = "resnet18", .stem = "big"}); }).find("'big'"), std::string::npos);
  EXPECT_NE(error_of([] {
              build_model({.name = "vgg11_bn", .input = {1, 28, 28}});
            }).find("features.28"),
            std::string::npos);
}

/// Names and shapes of a weight file, without num_batches_tracked.
Shapes file_shapes(const TensorFile& file) {
  Shapes shapes;
  for (const auto& [name, tensor] : file.tensors) shapes[name] = tensor.shape;
  return shapes;
}

TEST(Zoo, NamesAndShapesOfRealSafetensors) {
  const std::string data = shared_data();
  if (data.empty()) GTEST_SKIP() << "no shared data on this machine";
  const Graph mobilenet =
      build_model({.name = "mobilenet_v2", .input = {3, 224, 224}, .classes = 1000, .folded = true});
  EXPECT_EQ(parameter_shapes(mobilenet),
            file_shapes(read_safetensors(data + "/weights/mobilenet_v2_imagenet_bn_folded.safetensors")));
  EXPECT_EQ(parameter_shapes(imagenet("squeezenet1_1")),
            file_shapes(read_safetensors(data + "/weights/squeezenet1_1_imagenet.safetensors")));
}

ModelSpec written(std::vector<NodeSpec> nodes) {
  return {.name = "graph", .input = {3, 8, 8}, .classes = 10, .graph = std::move(nodes)};
}

TEST(CustomGraph, BuildsWhatIsWritten) {
  const Graph graph = build_model(written({
      {.name = "c1", .op = "conv2d", .attributes = {{"out_channels", 8}, {"kernel", 3}, {"pad", 1}, {"bias", 0}}},
      {.name = "b1", .op = "batch_norm", .attributes = {{"epsilon", 0.25}}},
      {.name = "r1", .op = "relu"},
      {.name = "c2", .op = "conv2d", .attributes = {{"out_channels", 8}, {"kernel", 1}, {"groups", 4}}},
      {.name = "sum", .op = "add", .inputs = {"r1", "c2"}},
      {.op = "max_pool", .attributes = {{"kernel", 2}}},
      {.op = "flatten"},
      {.name = "fc", .op = "linear", .attributes = {{"out_channels", 10}}},
  }));
  EXPECT_EQ(parameter_shapes(graph), (Shapes{{"c1.weight", {8, 3, 3, 3}},
                                             {"b1.weight", {8}},
                                             {"b1.bias", {8}},
                                             {"b1.running_mean", {8}},
                                             {"b1.running_var", {8}},
                                             {"c2.weight", {8, 2, 1, 1}},
                                             {"c2.bias", {8}},
                                             {"fc.weight", {10, 128}},
                                             {"fc.bias", {10}}}));
  EXPECT_EQ(graph.nodes[2].epsilon, 0.25);
  EXPECT_EQ(graph.nodes[6].name, "max_pool_6");
  EXPECT_EQ(graph.nodes[6].shape, (Shape{8, 4, 4}));
}

TEST(CustomGraph, PaddingOfEachSideAndEpsilonAreWritten) {
  const Graph graph = build_model(written({
      {.name = "c",
       .op = "conv2d",
       .attributes = {{"out_channels", 8}, {"kernel", 3}, {"stride", 2}, {"pad", 1}, {"pad_top", 0}, {"pad_left", 0}}},
      {.name = "b", .op = "batch_norm", .attributes = {{"epsilon", 1e-3}}},
      {.name = "p", .op = "avg_pool", .attributes = {{"kernel", 2}, {"stride", 1}, {"pad_right", 1}}},
      {.op = "flatten"},
      {.name = "fc", .op = "linear", .attributes = {{"out_channels", 10}}},
  }));
  EXPECT_EQ(graph.nodes[1].window.pad, (Padding{0, 0, 1, 1}));
  EXPECT_EQ(graph.nodes[1].shape, (Shape{8, 4, 4}));
  EXPECT_EQ(graph.nodes[2].epsilon, 1e-3);
  EXPECT_EQ(graph.nodes[3].window.pad, (Padding{0, 0, 0, 1}));
  EXPECT_EQ(graph.nodes[3].shape, (Shape{8, 3, 4}));
  EXPECT_NE(error_of([] {
              build_model(written({{.name = "c", .op = "conv2d", .attributes = {{"out_channels", 10}, {"kernel", 8}}},
                                   {.name = "b", .op = "batch_norm", .attributes = {{"epsilon", 0}}}}));
            }).find("epsilon 0 is not in (0, 1]"),
            std::string::npos);
}

TEST(CustomGraph, ChannelsAreSplitAndPixelsRepeated) {
  const Graph graph = build_model(written({
      {.name = "low", .op = "slice", .attributes = {{"first_channel", 0}, {"out_channels", 1}}},
      {.name = "high", .op = "slice", .inputs = {"input"}, .attributes = {{"first_channel", 1}, {"out_channels", 2}}},
      {.name = "up", .op = "resize", .inputs = {"low"}, .attributes = {{"factor", 2}}},
      {.name = "up2", .op = "resize_bilinear", .inputs = {"high"}, .attributes = {{"factor", 2}}},
      {.name = "cat", .op = "concat", .inputs = {"up", "up2"}},
      {.op = "flatten"},
      {.name = "fc", .op = "linear", .attributes = {{"out_channels", 10}}},
  }));
  EXPECT_EQ(graph.nodes[2].shape, (Shape{2, 8, 8}));
  EXPECT_EQ(graph.nodes[4].op, Op::resize_bilinear);
  EXPECT_EQ(graph.nodes[5].shape, (Shape{3, 16, 16}));
  EXPECT_NE(
      error_of([] {
        build_model(written({{.name = "s", .op = "slice", .attributes = {{"first_channel", 2}, {"out_channels", 2}}}}));
      }).find("node 's' (slice): 2 channels from 2 on are not among 3"),
      std::string::npos);
}

TEST(CustomGraph, AttentionIsTwoMatmulsAndASoftmax) {
  const Graph graph = build_model(written({
      {.name = "qkv", .op = "conv2d", .attributes = {{"out_channels", 12}, {"kernel", 1}}},
      {.name = "scores",
       .op = "matmul",
       .inputs = {"qkv", "qkv"},
       .attributes = {{"groups", 2}, {"transposed", 1}, {"scale", 0.5}}},
      {.name = "shares", .op = "softmax", .attributes = {{"groups", 2}}},
      {.name = "mixed", .op = "matmul", .inputs = {"shares", "qkv"}, .attributes = {{"groups", 2}}},
      {.op = "flatten"},
      {.name = "fc", .op = "linear", .attributes = {{"out_channels", 10}}},
  }));
  EXPECT_EQ(graph.nodes[2].shape, (Shape{128, 8, 8}));
  EXPECT_TRUE(graph.nodes[2].transposed);
  EXPECT_EQ(graph.nodes[2].scale, 0.5f);
  EXPECT_EQ(graph.nodes[3].groups, 2);
  EXPECT_EQ(graph.nodes[4].shape, (Shape{12, 8, 8}));
}

TEST(CustomGraph, APreluHasOneSlopeUnlessGroupsSayMore) {
  const Graph graph = build_model(written({
      {.name = "one", .op = "prelu"},
      {.name = "each", .op = "prelu", .attributes = {{"groups", 3}}},
      {.op = "flatten"},
      {.name = "fc", .op = "linear", .attributes = {{"out_channels", 10}}},
  }));
  EXPECT_EQ(graph.nodes[1].op, Op::prelu);
  EXPECT_EQ(graph.nodes[1].groups, 1);
  EXPECT_EQ(graph.nodes[2].groups, 3);
  EXPECT_EQ(graph.nodes[2].shape, (Shape{3, 8, 8}));
  EXPECT_NE(error_of([] {
              build_model(written({{.name = "p", .op = "prelu", .attributes = {{"groups", 2}}}}));
            }).find("node 'p' (prelu): 3 channels are not 2 groups"),
            std::string::npos);
}

TEST(CustomGraph, OutputsAreNamed) {
  ModelSpec spec = written({{.name = "a", .op = "conv2d", .attributes = {{"out_channels", 4}, {"kernel", 3}}},
                            {.name = "b", .op = "conv2d", .attributes = {{"out_channels", 2}, {"kernel", 1}}}});
  spec.outputs = {"b", "a"};
  const Graph graph = build_model(spec);
  EXPECT_EQ(graph.outputs, (std::vector<int>{2, 1}));
  EXPECT_EQ(error_of([&] { graph.classes(); }),
            "graph gives 'b' [2, 6, 6], 'a' [4, 6, 6]; a classifier gives one output, [classes, 1, 1]");
  const auto refusal = [&](const std::vector<std::string>& outputs) {
    spec.outputs = outputs;
    return error_of([&] { build_model(spec); });
  };
  EXPECT_EQ(refusal({"b"}), "");
  EXPECT_NE(refusal({"b", "aa"}).find("model.outputs: 'aa' is no node of model.graph; did you mean 'a'?"),
            std::string::npos)
      << refusal({"b", "aa"});
  EXPECT_NE(refusal({"b", "b"}).find("node 'b' (conv2d): an output twice"), std::string::npos);
  EXPECT_NE(refusal({"b", "input"}).find("nothing but the input"), std::string::npos);
}

TEST(CustomGraph, RefusesMistakesByName) {
  const auto refusal = [](std::vector<NodeSpec> nodes) {
    return error_of([&] { build_model(written(std::move(nodes))); });
  };
  EXPECT_NE(refusal({{.name = "x", .op = "linaer"}}).find("did you mean 'linear'"), std::string::npos);
  EXPECT_NE(refusal({{.name = "x", .op = "input"}}).find("is made for you"), std::string::npos);
  EXPECT_NE(refusal({{.name = "x", .op = "conv2d", .attributes = {{"kernel", 3}}}}).find("needs 'out_channels'"),
            std::string::npos);
  EXPECT_NE(refusal({{.name = "x", .op = "relu", .inputs = {"y"}}}).find("input 'y'"), std::string::npos);
  EXPECT_NE(refusal({{.name = "x", .op = "max_pool", .attributes = {{"kernel", 2}, {"strid", 2}}}})
                .find("did you mean 'stride'"),
            std::string::npos);
  EXPECT_NE(refusal({{.name = "x", .op = "max_pool", .attributes = {{"kernel", 2.5}}}}).find("not an integer"),
            std::string::npos);
  EXPECT_NE(refusal({{.name = "x", .op = "relu"}}).find("has 10 classes"), std::string::npos);
  EXPECT_NE(refusal({}).find("model.graph"), std::string::npos);
}

}  // namespace
}  // namespace octet
