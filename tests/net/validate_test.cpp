// SPDX-License-Identifier: Apache-2.0
// validate() accepts a good graph and names the node of every kind of bad one.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "src/net/int8_graph.h"
#include "src/net/op_traits.h"
#include "tests/net/test_graphs.h"

namespace octet {
namespace {

TEST(Validate, AcceptsEveryOp) {
  const Int8Graph graph = every_op_graph();
  EXPECT_EQ(error_of([&] { validate(graph); }), "");
  std::set<Op> ops;
  for (const Int8Node& node : graph.nodes) ops.insert(traits(node.op).op);
  for (const Op op : all_ops()) EXPECT_EQ(ops.contains(op), traits(op).int8.has_value()) << op_name(op);
  EXPECT_EQ(multiply_adds(graph), 4L * 27 * 36 + 4L * 18 * 36 + 5L * 48 + 18L * 9 * 4 + 3L * 5);
}

struct Corruption {
  const char* name;      ///< of the test case
  const char* node;      ///< that is damaged
  const char* expected;  ///< in the message
  void (*damage)(Int8Node& node);
};

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const Corruption kCorruptions[] = {
    {"NoName", "add", "has no name", [](Int8Node& n) { n.name = ""; }},
    {"NameTwice", "add", "two nodes are named 'conv1'", [](Int8Node& n) { n.name = "conv1"; }},
    {"SecondInput", "flatten", "only node 0", [](Int8Node& n) { n.op = Int8Op::input; }},
    {"MissingInput", "add", "1 inputs, needs 2", [](Int8Node& n) { n.inputs.pop_back(); }},
    {"InputOfItself", "add", "not an earlier node", [](Int8Node& n) { n.inputs[1] = 4; }},
    {"NegativeInput", "add", "not an earlier node", [](Int8Node& n) { n.inputs[0] = -1; }},
    {"HugeDimension", "conv1", "not in 1..", [](Int8Node& n) { n.shape.h = std::numeric_limits<int>::max(); }},
    {"HugeImage", "input", "more than",
     [](Int8Node& n) {
       n.shape = {60000, 60000, 60000};
     }},
    {"ZeroDimension", "input", "not in 1..", [](Int8Node& n) { n.shape.w = 0; }},
    {"ScaleZero", "add", "scale 0", [](Int8Node& n) { n.out.scale = 0; }},
    {"ScaleNegative", "add", "scale", [](Int8Node& n) { n.out.scale = -1; }},
    {"ScaleNan", "add", "scale", [](Int8Node& n) { n.out.scale = kNan; }},
    {"ScaleInfinite", "add", "scale", [](Int8Node& n) { n.out.scale = kInfinity; }},
    {"ScaleSubnormal", "add", "scale", [](Int8Node& n) { n.out.scale = 1e-40f; }},
    {"NineBits", "add", "do not fit 8 bits", [](Int8Node& n) { n.out.quant_max = 256; }},
    {"SignedBeyond", "requantize", "do not fit 8 bits", [](Int8Node& n) { n.out.quant_max = 128; }},
    {"ZeroPoint", "add", "zero point 256", [](Int8Node& n) { n.out.zero_point = 256; }},
    {"ClampBelow", "add", "clamp", [](Int8Node& n) { n.clamp_min = -1; }},
    {"ClampEmpty", "add", "clamp", [](Int8Node& n) { n.clamp_min = 200, n.clamp_max = 100; }},
    {"MultiplierCount", "conv1", "3 multipliers, needs 4", [](Int8Node& n) { n.multiplier.pop_back(); }},
    {"MultiplierOfPool", "max_pool", "1 multipliers, needs 0", [](Int8Node& n) { n.multiplier = {1}; }},
    {"MultiplierNan", "conv1", "multiplier nan, number 2, is not finite", [](Int8Node& n) { n.multiplier[2] = kNan; }},
    {"MultiplierHuge", "conv1", "beyond", [](Int8Node& n) { n.multiplier[2] = 2e28f; }},
    {"BiasCount", "conv1", "5 biases", [](Int8Node& n) { n.bias.push_back(0); }},
    {"BiasInfinite", "fc", "bias inf", [](Int8Node& n) { n.bias[0] = kInfinity; }},
    {"ResidualMultiplier", "conv2", "residual multiplier", [](Int8Node& n) { n.residual_multiplier = kNan; }},
    {"ResidualWithout", "conv1", "without a residual", [](Int8Node& n) { n.residual_multiplier = 1; }},
    {"WeightScale", "conv1", "weight scale", [](Int8Node& n) { n.weight_scale[0] = 0; }},
    {"WeightCount", "conv1", "107 weights, needs 108", [](Int8Node& n) { n.weight.pop_back(); }},
    {"WeightOfPool", "gap", "1 weights, needs 0", [](Int8Node& n) { n.weight = {1}; }},
    {"WeightCode", "conv1", "-128", [](Int8Node& n) { n.weight[30] = -128; }},
    {"KernelZero", "conv1", "kernel 0", [](Int8Node& n) { n.window.kernel_h = 0; }},
    {"StrideZero", "conv1", "stride 0", [](Int8Node& n) { n.window.stride_w = 0; }},
    {"PadNegative", "conv1", "pad -1", [](Int8Node& n) { n.window.pad.left = -1; }},
    {"DilationHuge", "conv2", "dilation", [](Int8Node& n) { n.window.dilation_h = std::numeric_limits<int>::max(); }},
    {"WindowTooLarge", "conv1", "spans 13 pixels", [](Int8Node& n) { n.window.dilation_h = 6; }},
    {"PoolDilation", "max_pool", "have none", [](Int8Node& n) { n.window.dilation_h = 2; }},
    {"PoolPad", "max_pool", "more than half", [](Int8Node& n) { n.window.pad.top = 2; }},
    {"PoolPadBehind", "avg_pool", "pad 2 is more than half", [](Int8Node& n) { n.window.pad.right = 2; }},
    {"PadBehind", "conv1", "its inputs give [4, 6, 7]", [](Int8Node& n) { n.window.pad.right = 2; }},
    {"GroupsZero", "conv2", "groups 0", [](Int8Node& n) { n.groups = 0; }},
    {"GroupsUneven", "conv2", "groups 3", [](Int8Node& n) { n.groups = 3; }},
    {"ResidualShape", "conv2", "gives [4, 6, 6], and its residual is [3, 6, 6]", [](Int8Node& n) { n.inputs[1] = 0; }},
    {"ConvShape", "conv1", "its inputs give [4, 6, 6]", [](Int8Node& n) { n.shape.w = 5; }},
    {"AddShape", "add", "shapes [3, 6, 6] and [4, 6, 6] differ", [](Int8Node& n) { n.inputs[0] = 0; }},
    {"ConcatShape", "concat", "its inputs give [8, 6, 6]", [](Int8Node& n) { n.shape.c = 9; }},
    {"PoolShape", "avg_pool", "its inputs give", [](Int8Node& n) { n.shape.c = 9; }},
    {"PadOddChannels", "subsample_pad", "evenly", [](Int8Node& n) { n.shape.c = 11; }},
    {"FlattenShape", "flatten", "its inputs give [48, 1, 1]", [](Int8Node& n) { n.shape.c = 47; }},
    {"LinearOfImage", "hidden", "is not flat", [](Int8Node& n) { n.inputs[0] = 8, n.weight.resize(5 * 12); }},
    {"PassThroughScale", "max_pool", "of its input", [](Int8Node& n) { n.out.scale = 1; }},
    {"FlattenClamp", "flatten", "cannot clamp", [](Int8Node& n) { n.clamp_min = 100; }},
    {"TableMissing", "lookup", "0 table entries, needs 256", [](Int8Node& n) { n.table.clear(); }},
    {"TableShort", "lookup", "255 table entries, needs 256", [](Int8Node& n) { n.table.pop_back(); }},
    {"TableOfPool", "gap", "1 table entries, needs 0", [](Int8Node& n) { n.table = {1}; }},
    {"TableEntryAbove", "lookup", "table entry 17 is 122, outside the clamp [-128, 121]",
     [](Int8Node& n) { n.clamp_max = 121; }},
    {"TableEntryBelow", "lookup", "is -128, outside the clamp [-127, 127]", [](Int8Node& n) { n.clamp_min = -127; }},
    {"TableOfUnsignedCodes", "lookup", "table entry 18 is 129, outside the clamp [0, 128]",
     [](Int8Node& n) {
       n.out = {0.05f, 0, 0, 128}, n.clamp_min = 0, n.clamp_max = 128;
     }},
    {"TablesTooFew", "lookup", "256 table entries, needs 1280",
     [](Int8Node& n) {
       n.groups = 5;
       n.multiplier.assign(10, 1.0f);
     }},
    {"TablesOfOtherGroups", "lookup", "groups 3: 1, or one for each of 5 channels",
     [](Int8Node& n) {
       n.groups = 3;
       n.multiplier.assign(6, 1.0f);
       n.table.resize(3 * 256);
     }},
    {"TablesOfNoGroup", "lookup", "groups 0: 1, or one for each",
     [](Int8Node& n) {
       n.groups = 0;
       n.table.clear();
     }},
    {"TablesOfHugeGroups", "lookup", "multipliers, needs 4294967294",
     [](Int8Node& n) { n.groups = std::numeric_limits<int>::max(); }},
    {"TablesWithoutScales", "lookup", "0 multipliers, needs 10",
     [](Int8Node& n) {
       n.groups = 5;
       n.table.resize(5 * 256);
     }},
    {"TablesOfANegativeScale", "lookup", "a channel's scale is -1, not positive",
     [](Int8Node& n) {
       n.groups = 5;
       n.multiplier.assign(10, 1.0f);
       n.multiplier[7] = -1;
       n.table.resize(5 * 256);
     }},
    {"MulShape", "mul", "its inputs give [5, 1, 1]", [](Int8Node& n) { n.shape.h = 2; }},
    {"MulByAnotherShape", "mul", "cannot multiply [5, 1, 1] by [12, 2, 2]", [](Int8Node& n) { n.inputs[1] = 8; }},
    {"LookupShape", "lookup", "its inputs give [5, 1, 1]", [](Int8Node& n) { n.shape.c = 4; }},
    {"SliceShape", "slice", "its inputs give [4, 3, 3]", [](Int8Node& n) { n.shape.h = 4; }},
    {"SliceBefore", "slice", "4 channels from -1 on", [](Int8Node& n) { n.first_channel = -1; }},
    {"SliceBehind", "slice", "4 channels from 5 on are not among 8", [](Int8Node& n) { n.first_channel = 5; }},
    {"SliceFar", "slice", "are not among 8", [](Int8Node& n) { n.first_channel = std::numeric_limits<int>::max(); }},
    {"SliceClamp", "slice", "cannot clamp", [](Int8Node& n) { n.clamp_min = 100; }},
    {"ResizeShape", "resize", "its inputs give [4, 6, 9]", [](Int8Node& n) { n.shape.w = 8; }},
    {"ResizeNone", "resize", "cannot become 0 times as many", [](Int8Node& n) { n.factor_h = 0; }},
    {"ResizeHuge", "resize", "cannot become", [](Int8Node& n) { n.factor_w = std::numeric_limits<int>::max(); }},
    {"ResizeScale", "resize", "of its input", [](Int8Node& n) { n.out.scale = 1; }},
    {"ShuffleGroups", "channel_shuffle", "8 channels are not 3 groups", [](Int8Node& n) { n.groups = 3; }},
    {"ShuffleNone", "channel_shuffle", "8 channels are not 0 groups", [](Int8Node& n) { n.groups = 0; }},
    {"ShuffleShape", "channel_shuffle", "its inputs give [8, 3, 3]", [](Int8Node& n) { n.shape.c = 4; }},
    {"DepthParts", "depth_to_space", "8 channels are not 3 x 2 pixels", [](Int8Node& n) { n.factor_h = 3; }},
    {"DepthNone", "depth_to_space", "cannot become 0 times as many", [](Int8Node& n) { n.factor_w = 0; }},
    {"DepthShape", "depth_to_space", "its inputs give [4, 3, 6]", [](Int8Node& n) { n.shape.h = 6; }},
    {"BilinearShape", "resize_bilinear", "its inputs give [4, 6, 9]", [](Int8Node& n) { n.shape.w = 8; }},
    {"BilinearNone", "resize_bilinear", "cannot become 0 times as many", [](Int8Node& n) { n.factor_h = 0; }},
    {"BilinearHuge", "resize_bilinear", "cannot become",
     [](Int8Node& n) { n.factor_w = std::numeric_limits<int>::max(); }},
    {"BilinearSums", "resize_bilinear",
     "node 18 'resize_bilinear' (resize_bilinear): 257 x 65 times as many pixels: above 16448 float32 cannot hold",
     [](Int8Node& n) { n.factor_h = 257, n.factor_w = 65; }},
    {"BilinearMultipliers", "resize_bilinear", "0 multipliers, needs 1", [](Int8Node& n) { n.multiplier.clear(); }},
    {"MatmulShape", "matmul", "its inputs give [18, 3, 3]", [](Int8Node& n) { n.shape.c = 9; }},
    {"MatmulGroups", "matmul", "8 channels are not 3 groups", [](Int8Node& n) { n.groups = 3; }},
    {"MatmulChannels", "matmul", "[8, 3, 3] by the pixels of [4, 6, 9]: the channels differ",
     [](Int8Node& n) { n.inputs[1] = 15; }},
    {"MatmulPixels", "matmul", "4 channels a group, needs one for each of 9 pixels",
     [](Int8Node& n) { n.transposed = false; }},
    {"MatmulMultipliers", "matmul", "0 multipliers, needs 1", [](Int8Node& n) { n.multiplier.clear(); }},
    {"SoftmaxGroups", "softmax", "18 channels are not 4 groups", [](Int8Node& n) { n.groups = 4; }},
    {"SoftmaxShape", "softmax", "its inputs give [18, 3, 3]", [](Int8Node& n) { n.shape.c = 9; }},
    {"SoftmaxFewer", "softmax", "255 exponentials, needs 256", [](Int8Node& n) { n.exponentials.pop_back(); }},
    {"SoftmaxLarger", "softmax", "exponential 3 is 32769, allowed are 0..32768",
     [](Int8Node& n) { n.exponentials[3] = 32769; }},
    {"SoftmaxBelow", "softmax", "exponential 255 is -1", [](Int8Node& n) { n.exponentials[255] = -1; }},
    {"SoftmaxNothing", "softmax", "exponential 0 is 32767, allowed are 0..32768, the first 32768",
     [](Int8Node& n) { n.exponentials[0] = 32767; }},
    {"PreluShape", "prelu", "its inputs give [8, 3, 3]", [](Int8Node& n) { n.shape.c = 4; }},
    {"PreluGroups", "prelu", "8 channels are not 3 groups", [](Int8Node& n) { n.groups = 3, n.multiplier.pop_back(); }},
    {"PreluNone", "prelu", "8 channels are not 0 groups", [](Int8Node& n) { n.groups = 0, n.multiplier = {1}; }},
    {"PreluMultipliers", "prelu", "4 multipliers, needs 5", [](Int8Node& n) { n.multiplier.pop_back(); }},
    {"PreluSlope", "prelu", "multiplier inf, number 4, is not finite",
     [](Int8Node& n) { n.multiplier[4] = std::numeric_limits<float>::infinity(); }},
    {"ExponentialsOfNone", "slice", "1 exponentials, needs 0", [](Int8Node& n) { n.exponentials = {1}; }},
    {"FloatInside", "hidden", "reads 'hidden', which gives floats", [](Int8Node& n) { n.float_output = true; }},
    {"FloatCopies", "flatten", "copies codes", [](Int8Node& n) { n.float_output = true; }},
};

class ValidateRefuses : public testing::TestWithParam<Corruption> {};

TEST_P(ValidateRefuses, NamingTheNode) {
  Int8Graph graph = every_op_graph();
  GetParam().damage(node_named(graph, GetParam().node));
  EXPECT_NE(error_of([&] { validate(graph); }).find(GetParam().expected), std::string::npos)
      << error_of([&] { validate(graph); });
}

INSTANTIATE_TEST_SUITE_P(Kinds, ValidateRefuses, testing::ValuesIn(kCorruptions),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Validate, OutputsAreNodesOfTheirOwn) {
  const auto refusal = [](const std::vector<int>& outputs) {
    Int8Graph graph = every_op_graph();
    graph.outputs = outputs;
    graph.class_names.clear();
    return error_of([&] { validate(graph); });
  };
  const Int8Graph graph = every_op_graph();
  const int last = static_cast<int>(graph.nodes.size()) - 1;
  EXPECT_EQ(refusal({last, 3, 6}), "");
  EXPECT_EQ(refusal({}), "graph 'every_op' has no outputs");
  EXPECT_EQ(refusal({last, last + 1}), "output 23 is not one of the 23 nodes of 'every_op'");
  EXPECT_EQ(refusal({last, -1}), "output -1 is not one of the 23 nodes of 'every_op'");
  EXPECT_EQ(refusal({3, last, 3}), "node 'requantize' is an output twice");
  EXPECT_EQ(refusal({0, last}), "output 'input' is nothing but the input");
  EXPECT_EQ(refusal({3}), "node 22 'fc' gives floats and is no output");
}

TEST(Validate, ClassNamesBelongToAnOnlyOutput) {
  Int8Graph graph = every_op_graph();
  graph.outputs.push_back(3);
  EXPECT_EQ(error_of([&] { validate(graph); }),
            "class names need one output, the network has 2: 'fc' float32 [3, 1, 1], 'requantize' codes [4, 6, 6]");
}

TEST(Int8Graph, OnlyAClassifierHasClasses) {
  Int8Graph graph = every_op_graph();
  EXPECT_EQ(graph.classes(), 3);
  graph.outputs.push_back(3);
  EXPECT_EQ(error_of([&] { graph.classes(); }),
            "every_op gives 'fc' float32 [3, 1, 1], 'requantize' codes [4, 6, 6]; a classifier gives one output, "
            "float32 [classes, 1, 1]");
  graph.outputs = {10};
  EXPECT_NE(error_of([&] { graph.classes(); }).find("'hidden' codes [5, 1, 1]"), std::string::npos);
}

/// An image of 512x260 whose codes are `codes`, and one convolution as large as it.
Int8Graph one_window(const QParams& codes, const std::vector<int8_t>& weight) {
  Int8Graph graph;
  graph.nodes.resize(3);
  graph.nodes[0] = {.name = "input",
                    .shape = {1, 512, 260},
                    .out = codes,
                    .clamp_min = codes.quant_min,
                    .clamp_max = codes.quant_max};
  graph.nodes[1] = graph.nodes[0];
  graph.nodes[1].name = "conv";
  graph.nodes[1].op = Int8Op::conv2d;
  graph.nodes[1].inputs = {0};
  graph.nodes[1].shape = {1, 1, 1};
  graph.nodes[1].window = {.kernel_h = 512, .kernel_w = 260};
  graph.nodes[1].weight = weight;
  graph.nodes[1].weight.resize(512 * 260);
  graph.nodes[1].weight_scale = graph.nodes[1].multiplier = graph.nodes[1].bias = {1};
  graph.nodes[2] = graph.nodes[1];
  graph.nodes[2].name = "fc";
  graph.nodes[2].op = Int8Op::linear;
  graph.nodes[2].inputs = {1};
  graph.nodes[2].window = {};
  graph.nodes[2].weight = {1};
  graph.nodes[2].float_output = true;
  graph.outputs = {2};
  graph.preprocessing = {.mean = {0}, .std = {1}};
  return graph;
}

/// Weights of alternating sign whose magnitudes add up to `sum`.
std::vector<int8_t> weights_of(int64_t sum) {
  std::vector<int8_t> weight;
  for (int sign = 1; sum > 0; sign = -sign) {
    const int64_t magnitude = std::min<int64_t>(sum, 127);
    weight.push_back(static_cast<int8_t>(sign * magnitude));
    sum -= magnitude;
  }
  return weight;
}

/// How far codes reach from their zero point is the larger of both ends: 2^31 is refused at each, one less is not.
TEST(Validate, AccumulatorsOfEveryRangeOfCodesUpToTheirEdge) {
  struct Case {
    QParams codes;
    int64_t reach;
  };
  for (const auto& [codes, reach] :
       {Case{{0.01f, 0, -128, 127}, 128}, Case{{0.01f, 0, 0, 255}, 255}, Case{{0.01f, 255, 0, 255}, 255},
        Case{{0.01f, 127, 0, 255}, 128}, Case{{0.01f, 128, 0, 255}, 128}, Case{{0.01f, 100, 0, 255}, 155}}) {
    const int64_t most = ((int64_t{1} << 31) - 1) / reach;  // 127 * 512 * 260 weights can add up to more
    EXPECT_EQ(error_of([&] { validate(one_window(codes, weights_of(most))); }), "") << codes.zero_point;
    EXPECT_NE(error_of([&] { validate(one_window(codes, weights_of(most + 1))); }).find("leave int32"),
              std::string::npos)
        << codes.zero_point;
  }
  // 2^24 * 128 is 2^31 itself.
  EXPECT_EQ(((int64_t{1} << 31) - 1) / 128 + 1, int64_t{1} << 24);
}

TEST(Validate, FewerBitsMayAddUpMore) {
  const QParams four_bits{0.01f, 0, 0, 15};
  EXPECT_EQ(error_of([&] { validate(one_window(four_bits, weights_of(int64_t{127} * 512 * 260))); }), "");
}

/// A global average pool over 2^24 pixels: 2^24 * 128 is 2^31.
TEST(Validate, SumsOfPoolsUpToTheirEdge) {
  const auto pool = [](const QParams& codes, const Shape& image) {
    Int8Graph graph = one_window(codes, {1});
    graph.nodes[0].shape = image;
    Int8Node& node = graph.nodes[1];
    node = {.name = "pool",
            .op = Int8Op::global_avg_pool,
            .inputs = {0},
            .shape = {1, 1, 1},
            .out = codes,
            .clamp_min = codes.quant_min,
            .clamp_max = codes.quant_max,
            .multiplier = {1e-6f}};
    return error_of([&] { validate(graph); });
  };
  for (const QParams& codes :
       {QParams{0.01f, 0, -128, 127}, QParams{0.01f, 127, 0, 255}, QParams{0.01f, 128, 0, 255}}) {
    EXPECT_EQ(pool(codes, {1, 4095, 4096}), "");
    EXPECT_NE(pool(codes, {1, 4096, 4096}).find("sums of the pool can leave int32"), std::string::npos);
  }
}

/// 257 x 64 = 16448 is the most: 4 * 16448 * 255 is 2^24 - 256.
TEST(Validate, BilinearSumsUpToWhatFloat32Holds) {
  const auto resized = [](int factor_h, int factor_w) {
    Int8Graph graph = every_op_graph();
    Int8Node& node = node_named(graph, "resize_bilinear");
    node.factor_h = factor_h, node.factor_w = factor_w;
    node.shape = {4, 3 * factor_h, 3 * factor_w};
    return error_of([&] { validate(graph); });
  };
  EXPECT_EQ(resized(257, 64), "");
  EXPECT_EQ(resized(1, 16448), "");
  EXPECT_NE(resized(1, 16449).find("above 16448"), std::string::npos);
  EXPECT_NE(resized(257, 65).find("above 16448"), std::string::npos);
}

TEST(Validate, RefusesConcatOfDifferentSizes) {
  for (const bool wide : {false, true}) {
    Int8Graph graph = every_op_graph();
    Int8Node& half = node_named(graph, "requantize");
    const Int8Node& whole = node_named(graph, "conv1");
    half = {.name = "half", .op = Int8Op::max_pool, .inputs = {1}, .shape = whole.shape, .out = whole.out};
    half.clamp_min = whole.clamp_min;
    half.clamp_max = whole.clamp_max;
    (wide ? half.window.kernel_h : half.window.kernel_w) = 2;
    (wide ? half.window.stride_h : half.window.stride_w) = 2;
    (wide ? half.shape.h : half.shape.w) = 3;
    node_named(graph, "add").inputs = {2, 2};
    node_named(graph, "concat").inputs = {1, 3};
    EXPECT_NE(error_of([&] { validate(graph); }).find("sizes of"), std::string::npos)
        << error_of([&] { validate(graph); });
  }
}

TEST(Validate, RefusesBadPreprocessingAndClasses) {
  Int8Graph graph = every_op_graph();
  graph.preprocessing.mean.pop_back();
  EXPECT_NE(error_of([&] { validate(graph); }).find("2 means and 3 stds for 3 channels"), std::string::npos);
  graph = every_op_graph();
  graph.preprocessing.std[1] = 0;
  EXPECT_NE(error_of([&] { validate(graph); }).find("of channel 1"), std::string::npos);
  graph = every_op_graph();
  graph.preprocessing.crop = -1;
  EXPECT_NE(error_of([&] { validate(graph); }).find("crop -1"), std::string::npos);
  graph = every_op_graph();
  graph.class_names.pop_back();
  EXPECT_NE(error_of([&] { validate(graph); }).find("2 class names for the 3 channels of the output 'fc'"),
            std::string::npos);
}

TEST(Validate, RefusesEmptyGraphs) {
  EXPECT_NE(error_of([] { validate(Int8Graph{}); }).find("0 nodes"), std::string::npos);
}

TEST(Validate, ALookupGivesNoFloats) {
  Int8Graph graph = every_op_graph();
  while (graph.nodes.back().op != Int8Op::lookup) graph.nodes.pop_back();
  graph.nodes.back().float_output = true;
  EXPECT_NE(error_of([&] { validate(graph); }).find("gives codes, not floats"), std::string::npos);
}

}  // namespace
}  // namespace octet
