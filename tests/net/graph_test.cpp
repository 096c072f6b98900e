// SPDX-License-Identifier: Apache-2.0
// Shape inference, names, parameters.
#include "src/net/graph.h"

#include <gtest/gtest.h>

#include <limits>

#include <algorithm>
#include <map>

#include "src/net/zoo.h"
#include "tests/net/test_graphs.h"

namespace octet {
namespace {

Graph one_node(Node node, const Shape& input) {
  Graph graph;
  graph.name = "test";
  graph.nodes.push_back({.name = "input", .op = Op::input, .shape = input});
  if (node.inputs.empty()) node.inputs = {0};
  graph.nodes.push_back(std::move(node));
  return graph;
}

Shape shape_of(const Node& node, const Shape& input) {
  Graph graph = one_node(node, input);
  infer_shapes(graph);
  return graph.nodes.back().shape;
}

std::string refusal(const Node& node, const Shape& input = {4, 8, 8}) {
  return error_of([&] { shape_of(node, input); });
}

TEST(Graph, OpNamesGoBothWays) {
  EXPECT_EQ(all_ops().back(), Op::prelu);
  for (const Op op : all_ops()) EXPECT_EQ(op_from_name(op_name(op)), op);
  EXPECT_NE(error_of([] { op_from_name("conv2"); }).find("did you mean 'conv2d'"), std::string::npos);
}

TEST(Functions, KnowTheirNamesAndFormulas) {
  for (const std::string_view name : names_in(kFunctions))
    EXPECT_EQ(function_text({*find_function(name)}).find(name), 0u);
  EXPECT_FALSE(find_function("relu"));
  EXPECT_EQ(function_text({FunctionKind::leaky_relu, 0.25f}), "leaky_relu 0.25");
  // At -4, -1 and 2; from the papers' formulas with ten digits.
  const std::map<std::string_view, std::vector<double>> expected = {
      {"silu", {-0.0719448398, -0.2689414214, 1.7615941560}},
      {"hard_swish", {0, -1.0 / 3, 5.0 / 3}},
      {"hard_sigmoid", {0, 1.0 / 3, 5.0 / 6}},
      {"sigmoid", {0.0179862100, 0.2689414214, 0.8807970780}},
      {"tanh", {-0.9993292997, -0.7615941560, 0.9640275801}},
      {"gelu", {-0.0001266850, -0.1586552539, 1.9544997361}},
      {"leaky_relu", {-1, -0.25, 2}},
      {"mish", {-0.0725917408, -0.3034014614, 1.9439589595}},
      {"softplus", {0.0181499279, 0.3132616875, 2.1269280110}},
      {"elu", {-0.9816843611, -0.6321205588, 2}}};
  for (const auto& [name, values] : expected) {
    const Function function{*find_function(name), 0.25f};
    for (size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(evaluate(function, std::vector{-4.0, -1.0, 2.0}[i]), values[i], 1e-9) << name;
    EXPECT_EQ(never_negative(function.kind),
              *std::min_element(values.begin(), values.end()) >= 0 && name != "hard_swish")
        << name;
  }
}

TEST(Graph, ConvolutionShapes) {
  const Shape in{4, 9, 7};
  Node conv{.name = "c", .op = Op::conv2d, .out_channels = 6};
  EXPECT_EQ(shape_of(conv, in), (Shape{6, 9, 7}));
  conv.window = {.kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .pad = even_padding(1, 1)};
  EXPECT_EQ(shape_of(conv, in), (Shape{6, 5, 4}));
  conv.window = {.kernel_h = 3, .kernel_w = 1, .dilation_h = 4};
  EXPECT_EQ(shape_of(conv, in), (Shape{6, 1, 7}));
  conv.window = {.kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .pad = {.bottom = 1, .right = 2}};
  EXPECT_EQ(shape_of(conv, in), (Shape{6, 4, 4}));
  conv.window = {.kernel_h = 2, .kernel_w = 2, .stride_h = 3, .stride_w = 3};  // rounded down
  EXPECT_EQ(shape_of(conv, in), (Shape{6, 3, 2}));
}

TEST(Graph, OtherShapes) {
  const Shape in{4, 7, 7};
  const Window three_by_two{.kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2};
  EXPECT_EQ(shape_of({.name = "p", .op = Op::max_pool, .window = three_by_two}, in), (Shape{4, 3, 3}));
  EXPECT_EQ(shape_of({.name = "p", .op = Op::max_pool, .window = three_by_two}, {4, 8, 8}), (Shape{4, 3, 3}));
  const Window half_padded{.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2, .pad = even_padding(1, 1)};
  EXPECT_EQ(shape_of({.name = "p", .op = Op::max_pool, .window = half_padded}, {4, 8, 8}), (Shape{4, 5, 5}));
  EXPECT_EQ(shape_of({.name = "g", .op = Op::global_avg_pool}, in), (Shape{4, 1, 1}));
  EXPECT_EQ(shape_of({.name = "f", .op = Op::flatten}, in), (Shape{196, 1, 1}));
  EXPECT_EQ(shape_of({.name = "l", .op = Op::linear, .out_channels = 9}, {4, 1, 1}), (Shape{9, 1, 1}));
  EXPECT_EQ(shape_of({.name = "c", .op = Op::concat, .inputs = {0, 0, 0}}, in), (Shape{12, 7, 7}));
  EXPECT_EQ(shape_of({.name = "m", .op = Op::mul, .inputs = {0, 0}}, in), in);
  const Window half{.stride_h = 2, .stride_w = 2};
  EXPECT_EQ(shape_of({.name = "s", .op = Op::subsample_pad, .window = half, .out_channels = 8}, in), (Shape{8, 4, 4}));
}

TEST(Graph, PicksShapes) {
  const Shape in{4, 7, 5};
  const Node slice{.name = "s", .op = Op::slice, .out_channels = 3, .first_channel = 1};
  EXPECT_EQ(shape_of(slice, in), (Shape{3, 7, 5}));
  EXPECT_NE(refusal(slice, {3, 7, 5}).find("3 channels from 1 on are not among 3"), std::string::npos);
  EXPECT_EQ(shape_of({.name = "r", .op = Op::resize, .factor_h = 2, .factor_w = 3}, in), (Shape{4, 14, 15}));
  EXPECT_NE(refusal({.name = "r", .op = Op::resize, .factor_w = 0}).find("8 pixels cannot become 0 times as many"),
            std::string::npos);
  EXPECT_EQ(shape_of({.name = "b", .op = Op::resize_bilinear, .factor_h = 2, .factor_w = 3}, in), (Shape{4, 14, 15}));
  EXPECT_NE(refusal({.name = "b", .op = Op::resize_bilinear, .factor_h = 129, .factor_w = 128})
                .find("node 'b' (resize_bilinear): 129 x 128 times as many pixels: above 16448"),
            std::string::npos);
  EXPECT_EQ(shape_of({.name = "c", .op = Op::channel_shuffle, .groups = 2}, in), in);
  EXPECT_NE(refusal({.name = "c", .op = Op::channel_shuffle, .groups = 3}).find("4 channels are not 3 groups of one"),
            std::string::npos);
  EXPECT_EQ(shape_of({.name = "d", .op = Op::depth_to_space, .factor_h = 2, .factor_w = 1}, in), (Shape{2, 14, 5}));
  EXPECT_NE(refusal({.name = "d", .op = Op::depth_to_space, .factor_h = 3}).find("4 channels are not 3 x 1 pixels"),
            std::string::npos);
}

TEST(Graph, APreluHasAsManySlopesAsGroups) {
  for (const int groups : {1, 2, 4}) {
    Graph graph = one_node({.name = "p", .op = Op::prelu, .inputs = {0}, .groups = groups}, {4, 3, 5});
    infer_shapes(graph);
    EXPECT_EQ(graph.nodes.back().shape, (Shape{4, 3, 5}));
    ASSERT_EQ(parameters(graph).size(), 1u);
    EXPECT_EQ(parameters(graph)[0].name, "p.weight");
    EXPECT_EQ(parameters(graph)[0].shape, std::vector<long>{groups});
    EXPECT_TRUE(parameters(graph)[0].trainable());
  }
  EXPECT_NE(refusal({.name = "p", .op = Op::prelu, .groups = 3}).find("4 channels are not 3 groups of one"),
            std::string::npos);
}

TEST(Graph, ShapesOfAttention) {
  const Node scores{.name = "q", .op = Op::matmul, .inputs = {0, 0}, .groups = 2, .transposed = true};
  EXPECT_EQ(shape_of(scores, {6, 4, 5}), (Shape{40, 4, 5}));
  EXPECT_NE(refusal(scores, {5, 4, 5}).find("node 'q' (matmul): 5 channels are not 2 groups"), std::string::npos);
  EXPECT_NE(refusal(scores, {2, 256, 256}).find("2 groups of 65536 pixels as channels: more than 65536"),
            std::string::npos);
  const Node values{.name = "v", .op = Op::matmul, .inputs = {0, 0}, .groups = 2};
  EXPECT_EQ(shape_of(values, {40, 4, 5}), (Shape{40, 4, 5}));
  EXPECT_NE(refusal(values, {40, 4, 4}).find("20 channels a group, needs one for each of 16 pixels"),
            std::string::npos);
  const Node whole{.name = "w", .op = Op::matmul, .inputs = {0, 0}, .transposed = true};
  EXPECT_EQ(shape_of(whole, {33025, 1, 1}), (Shape{1, 1, 1}));  // 255 * 255 times as much is below 2^31
  EXPECT_NE(refusal(whole, {33026, 1, 1}).find("sums of 33026 products: above 33025 they can leave int32"),
            std::string::npos);
  EXPECT_EQ(shape_of({.name = "s", .op = Op::softmax, .groups = 3}, {6, 4, 5}), (Shape{6, 4, 5}));
  EXPECT_NE(refusal({.name = "s", .op = Op::softmax, .groups = 3}).find("4 channels are not 3 groups"),
            std::string::npos);
  EXPECT_NE(refusal({.name = "s", .op = Op::softmax}, {65536, 1, 1}).find("over 65536 channels: above 65535"),
            std::string::npos);
  for (const float scale : {0.0f, -1.0f, std::numeric_limits<float>::infinity()})
    EXPECT_NE(refusal({.name = "m", .op = Op::matmul, .inputs = {0, 0}, .transposed = true, .scale = scale})
                  .find("is not a positive number"),
              std::string::npos);
}

TEST(Graph, MatmulsCountAsMultiplyAdds) {
  Graph graph = one_node({.name = "q", .op = Op::matmul, .inputs = {0, 0}, .groups = 2, .transposed = true}, {6, 4, 5});
  infer_shapes(graph);
  EXPECT_EQ(multiply_adds(graph), 20 * 20 * 6);
}

TEST(Graph, RefusesWhatDoesNotFit) {
  const Window five{.kernel_h = 5, .kernel_w = 5};
  EXPECT_NE(
      refusal({.name = "c", .op = Op::conv2d, .window = five, .out_channels = 1}, {1, 4, 9}).find("spans 5 pixels"),
      std::string::npos);
  EXPECT_NE(refusal({.name = "c", .op = Op::conv2d, .out_channels = 6, .groups = 4}).find("groups 4"),
            std::string::npos);
  EXPECT_NE(refusal({.name = "c", .op = Op::conv2d, .out_channels = 0}).find("out_channels 0"), std::string::npos);
  EXPECT_NE(refusal({.name = "l", .op = Op::linear, .out_channels = 2}).find("[4, 8, 8] is not flat"),
            std::string::npos);
  EXPECT_NE(refusal({.name = "s", .op = Op::subsample_pad, .out_channels = 7}).find("evenly"), std::string::npos);
  EXPECT_NE(refusal({.name = "input", .op = Op::relu}).find("two nodes"), std::string::npos);
  EXPECT_NE(refusal({.name = "a", .op = Op::add}).find("has 1 inputs, needs 2"), std::string::npos);
  EXPECT_NE(refusal({.name = "r", .op = Op::relu, .inputs = {1}}).find("not an earlier node"), std::string::npos);
  EXPECT_NE(refusal({.name = "r", .op = Op::relu, .inputs = {-1}}).find("not an earlier node"), std::string::npos);
  EXPECT_NE(refusal({.name = "d", .op = Op::dropout, .dropout = 1.0f}).find("[0, 1)"), std::string::npos);
  EXPECT_NE(refusal({.name = "l", .op = Op::lookup, .function = {FunctionKind::leaky_relu, -0.1f}}).find("slope -0.1"),
            std::string::npos);
  EXPECT_NE(refusal({.name = "b", .op = Op::batch_norm, .epsilon = 0}).find("epsilon 0 is not in (0, 1]"),
            std::string::npos);
  const Window padded{.kernel_h = 2, .kernel_w = 2, .pad = even_padding(2, 0)};
  EXPECT_NE(refusal({.name = "p", .op = Op::max_pool, .window = padded}).find("more than half"), std::string::npos);
  const Window outside{.kernel_h = 3, .stride_h = 1, .pad = {.bottom = 3}};
  EXPECT_NE(refusal({.name = "p", .op = Op::max_pool, .window = outside}).find("pad 3 behind an image of 8 pixels"),
            std::string::npos);
  EXPECT_NE(refusal({.name = "r", .op = Op::relu}, {0, 8, 8}).find("not in 1.."), std::string::npos);
  EXPECT_NE(refusal({.name = "r", .op = Op::relu}, {60000, 60000, 60000}).find("elements"), std::string::npos);
}

TEST(Graph, KnowsWhoReadsWhat) {
  Graph graph = one_node({.name = "relu", .op = Op::relu}, {4, 8, 8});
  graph.nodes.push_back({.name = "twice", .op = Op::mul, .inputs = {1, 1}});
  graph.nodes.push_back({.name = "sum", .op = Op::add, .inputs = {1, 2}});
  graph.nodes.push_back({.name = "side", .op = Op::relu, .inputs = {1}});
  graph.outputs = {3, 2};
  infer_shapes(graph);
  EXPECT_EQ(reader_counts(graph), (std::vector<int>{1, 4, 1, 0, 0}));
  EXPECT_EQ(last_readers(graph), (std::vector<int>{1, 4, 5, 5, -1}));
}

TEST(Graph, AFactorForEachChannelComesSecond) {
  Graph graph = one_node({.name = "gate", .op = Op::global_avg_pool}, {4, 8, 8});
  graph.nodes.push_back({.name = "scaled", .op = Op::mul, .inputs = {0, 1}});
  infer_shapes(graph);
  EXPECT_EQ(graph.nodes.back().shape, (Shape{4, 8, 8}));
  graph.nodes[2].inputs = {1, 0};
  EXPECT_EQ(error_of([&] { infer_shapes(graph); }),
            "node 'scaled' (mul): cannot multiply [4, 1, 1] by [4, 8, 8]: the second input must be equal or [4, 1, 1]");
}

TEST(Graph, ErrorNamesBothShapes) {
  Graph graph = one_node({.name = "half", .op = Op::max_pool, .window = {.kernel_h = 2, .kernel_w = 2}}, {4, 8, 8});
  graph.nodes.push_back({.name = "sum", .op = Op::add, .inputs = {0, 1}});
  EXPECT_EQ(error_of([&] { infer_shapes(graph); }), "node 'sum' (add): shapes [4, 8, 8] and [4, 7, 7] differ");
}

TEST(Graph, ParametersOfAFusedConvolutionKeepTheirNames) {
  Node conv{.name = "conv", .op = Op::conv2d, .out_channels = 6, .groups = 2, .bias = true};
  conv.window = {.kernel_h = 3, .kernel_w = 5, .pad = even_padding(1, 2)};
  conv.batch_norm = "bn";
  Graph graph = one_node(conv, {4, 8, 8});
  infer_shapes(graph);
  std::map<std::string, std::vector<long>> shapes;
  for (const ParameterSpec& spec : parameters(graph)) shapes[spec.name] = spec.shape;
  EXPECT_EQ(shapes, (std::map<std::string, std::vector<long>>{{"conv.weight", {6, 2, 3, 5}},
                                                              {"conv.bias", {6}},
                                                              {"bn.weight", {6}},
                                                              {"bn.bias", {6}},
                                                              {"bn.running_mean", {6}},
                                                              {"bn.running_var", {6}}}));
  EXPECT_EQ(multiply_adds(graph), 6L * 8 * 8 * 2 * 3 * 5);
}

}  // namespace
}  // namespace octet
