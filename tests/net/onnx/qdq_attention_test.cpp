// SPDX-License-Identifier: Apache-2.0
// Attention in quantized networks as other tools write them.
#include <gtest/gtest.h>

#include "onnx.pb.h"
#include "src/net/onnx/onnx.h"
#include "tests/engine/random_network.h"
#include "tests/error_of.h"
#include "tests/net/onnx/read_qdq.h"
#include "tests/net/onnx/with_attention.h"

namespace octet {
namespace {

using namespace test;

/// As quantizers write that know of every node: the same scale once more behind each Reshape and Transpose.
TEST(QdqAttention, CodesPassThroughTheShapesOfAttention) {
  const Int8Graph graph = with_attention(ActivationScheme::affine_u8);
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(write_qdq(graph, {})));
  const onnx::GraphProto old = model.graph();
  std::map<std::string, std::vector<std::string>> edge_of;  // scale and zero point of what is dequantized
  std::map<std::string, std::string> renamed;
  model.mutable_graph()->clear_node();
  int pairs = 0;
  const auto add = [&](const char* op, const std::string& x, const std::vector<std::string>& edge, const char* suffix) {
    onnx::NodeProto& node = *model.mutable_graph()->add_node();
    node.set_op_type(op);
    node.set_name(x + suffix);
    for (const std::string& input : {x, edge[0], edge[1]}) node.add_input(input);
    node.add_output(node.name());
    return node.name();
  };
  for (const onnx::NodeProto& node : old.node()) {
    onnx::NodeProto& copy = *model.mutable_graph()->add_node();
    copy = node;
    for (std::string& input : *copy.mutable_input())
      if (renamed.contains(input)) input = renamed.at(input);
    const std::string& x = copy.input(0);
    const std::string y = copy.output(0);
    if (node.op_type() == "DequantizeLinear") edge_of[y] = {copy.input(1), copy.input(2)};
    const bool shape_only = node.op_type() == "Reshape" || node.op_type() == "Transpose";
    if (!shape_only || !edge_of.contains(x)) continue;
    const std::vector<std::string> edge = edge_of.at(x);
    renamed[y] = add("DequantizeLinear", add("QuantizeLinear", y, edge, "/q"), edge, "/dq");
    edge_of[renamed[y]] = edge;
    ++pairs;
  }
  EXPECT_EQ(pairs, 6);  // heads of queries, keys (both), shares, values; queries turned; scores into groups
  const ImportedInt8 back = parsed(model.SerializeAsString());
  EXPECT_EQ(back.graph.nodes.size(), graph.nodes.size());
  const std::vector<uint8_t> pixels = random_images(graph, kBatch, 5);
  EXPECT_EQ(codes_of(back.graph, pixels), codes_of(graph, pixels));
}

/// ONNX Runtime's quantizer gives a product and its multiple a scale each: the number is in the second's multiplier.
TEST(QdqAttention, ANumberBetweenTwoEdgesOfAttention) {
  const Int8Graph graph = with_attention(ActivationScheme::affine_u8);
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(write_qdq(graph, {})));
  const onnx::GraphProto old = model.graph();
  model.mutable_graph()->clear_node();
  for (const onnx::NodeProto& node : old.node()) {
    onnx::NodeProto& copy = *model.mutable_graph()->add_node();
    copy = node;
    for (const std::string before : {"scores", "scores/Mul"})
      if (copy.input(0) == before) copy.set_input(0, before + "/dq");
    if (node.name() != "scores" && node.name() != "scores/Mul") continue;
    std::string from = node.output(0);
    for (const auto& [op, suffix] : {std::pair{"QuantizeLinear", "/q"}, std::pair{"DequantizeLinear", "/dq"}}) {
      onnx::NodeProto& added = *model.mutable_graph()->add_node();
      added.set_op_type(op);
      for (const std::string& input : {from, std::string("scores.scale"), std::string("scores.zero_point")})
        added.add_input(input);
      from = node.output(0) + suffix;
      added.add_output(from);
    }
  }
  const ImportedInt8 back = parsed(model.SerializeAsString());
  std::vector<float> found;
  for (const Int8Node& node : back.graph.nodes)
    if (node.op == Int8Op::requantize) found.push_back(node.multiplier[0]);
  EXPECT_EQ(found, (std::vector<float>{0.7f, 1}));  // the second behind the Reshape to an image
}

void zero_point(ModelBuilder& model, const std::string& name, char value) {
  onnx::TensorProto& zero = *model.model().mutable_graph()->add_initializer();
  zero.set_name(name);
  zero.set_data_type(onnx::TensorProto::INT8);
  zero.set_raw_data(std::string(1, value));
}

/// Behind a Reshape to heads, of the same scale or another, or of another zero point than the QuantizeLinear.
std::string in_heads(const std::string& scale, const std::string& last_zero, const std::string& zero = "zero") {
  ModelBuilder model({8, 3, 2});
  model.integers("heads", {-1, 2, 4, 6});
  model.integers("to image", {-1, 8, 3, 2});
  model.scalar("scale", 0.03125f);
  model.scalar("half", 0.015625f);
  zero_point(model, "zero", 0);
  zero_point(model, "three", 3);
  quantized(model, "image", "scale", "zero");
  model.node("Reshape", {"image_q", "heads"}, "h");
  model.node("QuantizeLinear", {"h", scale, zero}, "codes");
  model.node("DequantizeLinear", {"codes", scale, last_zero}, "reals");
  model.node("Reshape", {"reals", "to image"}, "p");
  model.node("GlobalAveragePool", {"p"}, "y");
  return model.bytes("y");
}

TEST(QdqAttention, AnotherScaleBehindAReshapeIsAnEdgeOfItsOwn) {
  EXPECT_EQ(parsed(in_heads("scale", "zero")).graph.nodes.size(), 2u);
  const Int8Graph graph = parsed(in_heads("half", "zero")).graph;
  ASSERT_EQ(graph.nodes.size(), 3u);
  EXPECT_EQ(graph.nodes[1].op, Int8Op::requantize);
  EXPECT_EQ(graph.nodes[1].multiplier, std::vector<float>{2});
  EXPECT_NE(error_of([] { parsed(in_heads("scale", "three")); }).find("are not those of the QuantizeLinear before it"),
            std::string::npos);
}

TEST(QdqAttention, AnotherZeroPointBehindAReshapeIsAnEdgeOfItsOwn) {
  const Int8Graph graph = parsed(in_heads("scale", "three", "three")).graph;
  ASSERT_EQ(graph.nodes.size(), 3u);
  EXPECT_EQ(graph.nodes[1].op, Int8Op::requantize);
  EXPECT_EQ(graph.nodes[1].multiplier, std::vector<float>{1});
  EXPECT_EQ(graph.nodes[1].out.zero_point, 3);
}

/// Two heads of one query, one key and one value of four channels each: queries times keys and a softmax over the last,
/// or keys times queries and one over the keys, which are not last.
std::string of_two_heads(bool keys_first) {
  ModelBuilder model({24, 3, 2});
  model.integers("heads", {-1, 2, 12, 6});
  model.integers("to image", {-1, 8, 3, 2});
  model.scalar("scale", 0.03125f);
  model.scalar("share", 0.00390625f);
  zero_point(model, "zero", 0);
  quantized(model, "image", "scale", "zero");
  model.node("Reshape", {"image_q", "heads"}, "qkv");
  model.node("Split", {"qkv"}, "q").output("k").output("v").integer("axis", 2);
  const std::string left = keys_first ? "k" : "q", right = keys_first ? "q" : "k";
  model.node("Transpose", {left}, "turned").ints("perm", {0, 1, 3, 2});
  model.node("MatMul", {"turned", right}, "scores");
  quantized(model, "scores", "scale", "zero");
  model.node("Softmax", {"scores_q"}, "shares").integer("axis", keys_first ? 2 : 3);
  quantized(model, "shares", "share", "zero");
  if (!keys_first) model.node("Transpose", {"shares_q"}, "by_keys").ints("perm", {0, 1, 3, 2});
  model.node("MatMul", {"v", keys_first ? "shares_q" : "by_keys"}, "mixed");
  model.node("Reshape", {"mixed", "to image"}, "values");
  quantized(model, "values", "scale", "zero");
  model.node("GlobalAveragePool", {"values_q"}, "y");
  return model.bytes("y");
}

TEST(QdqAttention, KeysTimesQueriesAreTheSame) {
  const Int8Graph usual = parsed(of_two_heads(false)).graph, other = parsed(of_two_heads(true)).graph;
  const std::vector<uint8_t> pixels = random_images(usual, kBatch, 5);
  const auto expected = codes_of(usual, pixels), found = codes_of(other, pixels);
  EXPECT_EQ(found.at(other.nodes.back().name), expected.at(usual.nodes.back().name));
  EXPECT_EQ(found.at("mixed"), expected.at("mixed"));
}

}  // namespace
}  // namespace octet
