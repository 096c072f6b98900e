// SPDX-License-Identifier: Apache-2.0
// 2:4 sparse weights in a checkpoint: said in the file, and checked in every group whenever a file is read or written.
#include <gtest/gtest.h>

#include "src/base/safetensors.h"
#include "src/net/checkpoint.h"
#include "tests/net/test_graphs.h"

namespace octet {
namespace {

/// An image of 8 channels through a 3x3 convolution in two groups and a linear, both 2:4 sparse.
Int8Graph sparse_graph() {
  Int8Graph graph;
  graph.name = "sparse";
  graph.preprocessing = {
      .resize = 0, .crop = 2, .mean = std::vector<float>(8, 0.5f), .std = std::vector<float>(8, 0.5f)};
  const QParams codes{0.5f, 3, 0, 255};
  graph.nodes = {
      {.name = "input", .op = Int8Op::input, .shape = {8, 2, 2}, .out = codes, .clamp_min = 0, .clamp_max = 255},
      {.name = "conv", .op = Int8Op::conv2d, .inputs = {0}, .groups = 2, .shape = {4, 1, 1}, .out = codes},
      {.name = "fc", .op = Int8Op::linear, .inputs = {1}, .shape = {3, 1, 1}, .float_output = true}};
  Int8Node &conv = graph.nodes[1], &fc = graph.nodes[2];
  conv.window.kernel_h = conv.window.kernel_w = 2;
  conv.clamp_min = 0, conv.clamp_max = 255;
  for (int i = 0; i < 4 * 4 * 4; ++i) conv.weight.push_back(static_cast<int8_t>(i % 4 == 1 || i % 4 == 3 ? i - 32 : 0));
  fc.weight = {0, 5, -6, 0, 127, 0, 0, -127, 0, 0, 0, 0};
  for (Int8Node* node : {&conv, &fc}) {
    const auto channels = static_cast<size_t>(node->shape.c);
    node->multiplier.assign(channels, 0.5f);
    node->bias.assign(channels, 0.25f);
    node->weight_scale.assign(channels, 0.01f);
    node->two_of_four = true;
  }
  graph.outputs = {2};
  return graph;
}

/// What is said of sparse_graph()'s file after a change.
template <class Change>
std::string refusal_of_sparse(const Change& change) {
  const std::string bytes = serialize_checkpoint(sparse_graph());
  TensorFile file = parse_safetensors(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), "x");
  change(file);
  const std::string changed = serialize_safetensors(file);
  return error_of([&] { parse(changed); });
}

TEST(SparseCheckpoint, ComesBackInVersion7AndOnlyThen) {
  Int8Graph graph = sparse_graph();
  EXPECT_EQ(checkpoint_version(graph), 7);
  const std::string bytes = serialize_checkpoint(graph);
  const Int8Graph read = parse(bytes);
  EXPECT_TRUE(read.nodes[1].two_of_four && read.nodes[2].two_of_four);
  EXPECT_EQ(serialize_checkpoint(read), bytes);
  graph.nodes[1].two_of_four = false;
  EXPECT_EQ(checkpoint_version(graph), 7);
  EXPECT_FALSE(parse(serialize_checkpoint(graph)).nodes[1].two_of_four);
  graph.nodes[2].two_of_four = false;
  EXPECT_EQ(checkpoint_version(graph), 1);
}

TEST(SparseCheckpoint, AGroupWithMoreThanTwoWeightsIsRefusedByName) {
  const std::string more =
      refusal_of_sparse([](TensorFile& file) { file.tensors.at("conv.weight").bytes[60] = std::byte{1}; });
  EXPECT_NE(more.find("'conv' (conv2d): 2:4 sparse, but more than two of the weights 60 to 63 are not 0"),
            std::string::npos)
      << more;
  EXPECT_EQ(refusal_of_sparse([](TensorFile& file) { file.tensors.at("fc.weight").bytes[8] = std::byte{1}; }),
            "");  // one of four
  Int8Graph graph = sparse_graph();
  graph.nodes[2].weight[0] = 1;
  EXPECT_NE(error_of([&] { serialize_checkpoint(graph); }).find("'fc' (linear): 2:4 sparse"), std::string::npos);
}

TEST(SparseCheckpoint, WhatCannotBeSparseIsRefused) {
  Int8Graph graph = sparse_graph();
  graph.nodes[0].two_of_four = true;
  EXPECT_NE(error_of([&] { validate(graph); }).find("2:4 sparse without weights"), std::string::npos);
  graph = sparse_graph();
  graph.nodes[1].groups = 4;  // two input channels each
  graph.nodes[1].weight.resize(4 * 4 * 2);
  EXPECT_NE(error_of([&] { validate(graph); }).find("a row has 2 input channels, no multiple of four"),
            std::string::npos);
  const std::string other =
      refusal_of_sparse([](TensorFile& file) { replace(file, R"("sparsity":"2:4")", R"("sparsity":"1:4")"); });
  EXPECT_NE(other.find("sparsity '1:4', allowed are none, 2:4"), std::string::npos) << other;
  const std::string missing = refusal_of_sparse([](TensorFile& file) { replace(file, R"(,"sparsity":"2:4")", ""); });
  EXPECT_NE(missing.find("'sparsity' is missing"), std::string::npos) << missing;
  const std::string older =
      refusal_of_sparse([](TensorFile& file) { replace(file, "\"format_version\":7", "\"format_version\":6"); });
  EXPECT_NE(older.find("unknown key 'sparsity'"), std::string::npos) << older;
}

}  // namespace
}  // namespace octet
