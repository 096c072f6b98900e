// SPDX-License-Identifier: Apache-2.0
// Weights of fewer than 8 bits in a checkpoint: packed on disk, the same network in memory.
#include <gtest/gtest.h>

#include <random>

#include "src/base/safetensors.h"
#include "src/net/checkpoint.h"
#include "tests/net/test_graphs.h"

namespace octet {
namespace {

/// every_op_graph() whose conv1 has 4 bits and whose conv2 has 3.
Int8Graph narrow_graph() {
  Int8Graph graph = graph_of_operators_until(5);
  for (int8_t& code : node_named(graph, "conv1").weight) code = static_cast<int8_t>(code / 16);
  for (int8_t& code : node_named(graph, "conv2").weight) code = static_cast<int8_t>(code / 32);
  node_named(graph, "conv1").weight_bits = 4;
  node_named(graph, "conv2").weight_bits = 3;
  return graph;
}

TensorFile file_of(const Int8Graph& graph) {
  const std::string bytes = serialize_checkpoint(graph);
  return parse_safetensors(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), "x");
}

/// What is said of narrow_graph()'s file after a change.
template <class Change>
std::string refusal_of_narrow(const Change& change) {
  TensorFile file = file_of(narrow_graph());
  change(file);
  const std::string bytes = serialize_safetensors(file);
  return error_of([&] { parse(bytes); });
}

TEST(PackedCheckpoint, ComesBackAsItWas) {
  const Int8Graph graph = narrow_graph();
  EXPECT_EQ(checkpoint_version(graph), 6);
  const std::string bytes = serialize_checkpoint(graph);
  Int8Graph read = parse(bytes);
  for (const Int8Node& node : graph.nodes) {
    EXPECT_EQ(node_named(read, node.name).weight, node.weight) << node.name;
    EXPECT_EQ(node_named(read, node.name).weight_bits, node.weight_bits) << node.name;
  }
  EXPECT_EQ(serialize_checkpoint(read), bytes);
}

/// A linear layer of 5 columns: at 7 bits 7 rows leave room for one code more behind the last.
TEST(PackedCheckpoint, EveryNumberOfWeightsComesBack) {
  for (int bits = 2; bits < 8; ++bits) {
    for (int rows = 1; rows <= 9; ++rows) {
      Int8Graph graph = every_op_graph();
      graph.class_names.clear();
      Int8Node& fc = node_named(graph, "fc");
      const size_t columns = fc.weight.size() / static_cast<size_t>(fc.shape.c);
      fc.shape.c = rows;
      fc.weight.assign(rows * columns, static_cast<int8_t>(-(1 << (bits - 1))));
      fc.multiplier.assign(rows, 0.5f);
      fc.bias.assign(rows, 0.25f);
      fc.weight_scale.assign(rows, 0.01f);
      fc.weight_bits = bits;
      Int8Graph read = parse(serialize_checkpoint(graph));
      ASSERT_EQ(node_named(read, "fc").weight, fc.weight) << bits << " bits, " << rows << " rows of " << columns;
    }
  }
}

TEST(PackedCheckpoint, TakesItsBitsOnDisk) {
  const TensorFile file = file_of(narrow_graph());
  const TensorData &conv1 = file.tensors.at("conv1.weight"), &conv2 = file.tensors.at("conv2.weight");
  EXPECT_EQ(conv1.dtype, DType::u8);
  EXPECT_EQ(conv1.shape, (std::vector<int64_t>{4 * 27 * 4 / 8}));
  EXPECT_EQ(conv2.shape, (std::vector<int64_t>{(4 * 18 * 3 + 7) / 8}));
  EXPECT_EQ(file.tensors.at("fc.weight").dtype, DType::i8);  // 8 bits
}

TEST(PackedCheckpoint, DamageIsRefusedByName) {
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const auto bits = [](const char* to) {
    return refusal_of_narrow(
        [&](TensorFile& file) { replace(file, "\"weight_bits\":4", std::string("\"weight_bits\":") + to); });
  };
  EXPECT_TRUE(has(bits("3"), "'conv1' (conv2d): 144 weights, needs 108")) << bits("3");
  EXPECT_TRUE(has(bits("8"), "'conv1.weight' is U8, must be I8")) << bits("8");
  EXPECT_TRUE(has(bits("1"), "'conv1': weight_bits 1")) << bits("1");
  EXPECT_TRUE(has(bits("9"), "must be I8")) << bits("9");
  EXPECT_TRUE(has(bits("-2147483648"), "weight_bits -2147483648"));
  const std::string missing = refusal_of_narrow([](TensorFile& file) { replace(file, ",\"weight_bits\":4", ""); });
  EXPECT_TRUE(has(missing, "'weight_bits' is missing")) << missing;
  const std::string older =
      refusal_of_narrow([](TensorFile& file) { replace(file, "\"format_version\":6", "\"format_version\":4"); });
  EXPECT_TRUE(has(older, "unknown key 'weight_bits'")) << older;
  const std::string filled = refusal_of_narrow([](TensorFile& file) {
    replace(file, "\"weight_bits\":3", "\"weight_bits\":5");
    file.tensors.at("conv2.weight").bytes.assign(45, std::byte{0xFF});
    file.tensors.at("conv2.weight").shape = {45};
  });
  EXPECT_EQ(filled, "");  // 72 codes of 5 bits fill 45 bytes
  const std::string wide = refusal_of_narrow([](TensorFile& file) { file.tensors.at("conv2.weight").shape = {9, 3}; });
  EXPECT_TRUE(has(wide, "has shape [9, 3], must have [27]")) << wide;
}

TEST(PackedCheckpoint, AWeightBeyondItsBitsIsNoNetwork) {
  Int8Graph graph = narrow_graph();
  node_named(graph, "conv1").weight[3] = 8;
  EXPECT_NE(error_of([&] { serialize_checkpoint(graph); }).find("weight code 8, allowed are -8..7"), std::string::npos);
  node_named(graph, "conv1").weight_bits = 9;
  EXPECT_NE(error_of([&] { serialize_checkpoint(graph); }).find("weights of 9 bits"), std::string::npos);
}

TEST(PackedCheckpoint, RandomDamageIsRefusedOrValid) {
  const std::string bytes = serialize_checkpoint(narrow_graph());
  std::mt19937 random(4);
  int refused = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string damaged = bytes;
    for (int flips = 0; flips < 1 + round % 3; ++flips)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    if (!error_of([&] { validate(parse(damaged)); }).empty()) ++refused;
  }
  EXPECT_GT(refused, 900);
}

}  // namespace
}  // namespace octet
