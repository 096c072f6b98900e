// SPDX-License-Identifier: Apache-2.0
#include "tests/net/test_graphs.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "src/base/error.h"
#include "src/net/checkpoint.h"
#include "src/net/op_traits.h"
#include "tests/source_dir.h"

namespace octet {
namespace {

constexpr QParams kSigned{0.05f, 0, -128, 127};
constexpr QParams kUnsigned{0.02f, 0, 0, 255};
constexpr QParams kAffine{0.03f, 100, 0, 255};

Int8Node make(const std::string& name, Int8Op op, std::vector<int> inputs, const Shape& shape, const QParams& out) {
  Int8Node node;
  node.name = name;
  node.op = op;
  node.inputs = std::move(inputs);
  node.shape = shape;
  node.out = out;
  node.clamp_min = out.quant_min;
  node.clamp_max = out.quant_max;
  return node;
}

/// Fills weight, scales, multiplier and bias with different small numbers.
void fill_weights(Int8Node& node, size_t per_channel) {
  const auto channels = static_cast<size_t>(node.shape.c);
  for (size_t i = 0; i < channels * per_channel; ++i) {
    node.weight.push_back(static_cast<int8_t>(static_cast<int>(i * 37 % 255) - 127));
  }
  for (size_t k = 0; k < channels; ++k) {
    node.weight_scale.push_back(0.01f * static_cast<float>(k + 1));
    node.multiplier.push_back(0.001f * static_cast<float>(k + 1));
    node.bias.push_back(0.1f * static_cast<float>(k) - 0.3f);
  }
}

}  // namespace

Int8Graph every_op_graph() {
  Int8Graph graph;
  graph.name = "every_op";
  auto& nodes = graph.nodes;
  nodes.push_back(make("input", Int8Op::input, {}, {3, 6, 6}, kAffine));

  nodes.push_back(make("conv1", Int8Op::conv2d, {0}, {4, 6, 6}, kUnsigned));
  nodes.back().window = {.kernel_h = 3, .kernel_w = 3, .pad = even_padding(1, 1)};
  fill_weights(nodes.back(), 3 * 3 * 3);

  nodes.push_back(make("conv2", Int8Op::conv2d, {1, 1}, {4, 6, 6}, kAffine));
  nodes.back().window = {.kernel_h = 3, .kernel_w = 3, .pad = {1, 2, 3, 2}, .dilation_h = 2, .dilation_w = 2};
  nodes.back().groups = 2;
  nodes.back().residual_multiplier = 0.75f;
  nodes.back().clamp_min = 100;
  fill_weights(nodes.back(), 3 * 3 * 2);

  nodes.push_back(make("requantize", Int8Op::requantize, {2}, {4, 6, 6}, kSigned));
  nodes.back().multiplier = {0.6f};
  nodes.push_back(make("add", Int8Op::add, {2, 3}, {4, 6, 6}, kAffine));
  nodes.back().multiplier = {1.0f, 0.5f};
  nodes.push_back(make("concat", Int8Op::concat, {1, 4}, {8, 6, 6}, kAffine));
  nodes.back().multiplier = {0.66f, 1.0f};
  nodes.push_back(make("max_pool", Int8Op::max_pool, {5}, {8, 3, 3}, kAffine));
  nodes.back().window = {.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2};
  nodes.push_back(make("avg_pool", Int8Op::avg_pool, {6}, {8, 3, 3}, kAffine));
  nodes.back().window = {.kernel_h = 3, .kernel_w = 3, .pad = even_padding(1, 1)};
  nodes.back().multiplier = {1.0f / 9};
  nodes.push_back(make("subsample_pad", Int8Op::subsample_pad, {7}, {12, 2, 2}, kAffine));
  nodes.back().window = {.stride_h = 2, .stride_w = 2};
  nodes.push_back(make("flatten", Int8Op::flatten, {8}, {48, 1, 1}, kAffine));
  nodes.push_back(make("hidden", Int8Op::linear, {9}, {5, 1, 1}, kUnsigned));
  fill_weights(nodes.back(), 48);
  nodes.push_back(make("gap", Int8Op::global_avg_pool, {10}, {5, 1, 1}, kUnsigned));
  nodes.back().multiplier = {1.0f};
  nodes.push_back(make("lookup", Int8Op::lookup, {11}, {5, 1, 1}, kSigned));
  nodes.back().function = "silu";
  for (int i = 0; i < 256; ++i) nodes.back().table.push_back(static_cast<uint8_t>(i * 7 + 3));
  nodes.push_back(make("mul", Int8Op::mul, {12, 11}, {5, 1, 1}, kSigned));
  nodes.back().multiplier = {0.01f};
  nodes.push_back(make("slice", Int8Op::slice, {7}, {4, 3, 3}, kAffine));
  nodes.back().first_channel = 3;
  nodes.push_back(make("resize", Int8Op::resize, {14}, {4, 6, 9}, kAffine));
  nodes.back().factor_h = 2, nodes.back().factor_w = 3;
  nodes.push_back(make("channel_shuffle", Int8Op::channel_shuffle, {7}, {8, 3, 3}, kAffine));
  nodes.back().groups = 4;
  nodes.push_back(make("depth_to_space", Int8Op::depth_to_space, {16}, {4, 3, 6}, kAffine));
  nodes.back().factor_w = 2;
  nodes.push_back(make("resize_bilinear", Int8Op::resize_bilinear, {14}, {4, 6, 9}, kSigned));
  nodes.back().factor_h = 2, nodes.back().factor_w = 3;
  nodes.back().multiplier = {0.025f};
  nodes.push_back(make("matmul", Int8Op::matmul, {7, 7}, {18, 3, 3}, kSigned));
  nodes.back().groups = 2, nodes.back().transposed = true;
  nodes.back().multiplier = {0.001f};
  nodes.push_back(make("softmax", Int8Op::softmax, {19}, {18, 3, 3}, kUnsigned));
  nodes.back().groups = 2;
  nodes.back().multiplier = {50.0f};
  for (int i = 0; i < 256; ++i) nodes.back().exponentials.push_back(kExponentialOne / (i + 1));
  nodes.push_back(make("prelu", Int8Op::prelu, {7}, {8, 3, 3}, kSigned));
  nodes.back().groups = 4;
  nodes.back().multiplier = {0.6f, 0.15f, -0.3f, 0.0f, 1.2f};
  nodes.push_back(make("fc", Int8Op::linear, {13}, {3, 1, 1}, QParams{}));
  nodes.back().float_output = true;
  fill_weights(nodes.back(), 5);
  graph.outputs = {static_cast<int>(nodes.size()) - 1};

  graph.preprocessing = {.resize = 8, .crop = 6, .mean = {0.5f, 0.4f, 0.3f}, .std = {0.25f, 0.2f, 0.3f}};
  graph.class_names = {"cat", "dog", "caf\u00e9"};
  graph.recipe_hash = "0123abcd";
  graph.accuracies = {{"float_top1", 0.9213}, {"int8_top1", 0.92}};
  return graph;
}

Int8Graph graph_of_operators_until(int version) {
  Int8Graph graph = every_op_graph();
  std::erase_if(graph.nodes, [&](const Int8Node& node) { return traits(node.op).version > version; });
  graph.outputs = {static_cast<int>(graph.nodes.size()) - 1};
  return graph;
}

Int8Node& node_named(Int8Graph& graph, const std::string& name) {
  for (Int8Node& node : graph.nodes) {
    if (node.name == name) return node;
  }
  throw std::logic_error("no node " + name);
}

Int8Graph parse(const std::string& bytes) {
  return parse_checkpoint(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), "test.safetensors");
}

void replace(TensorFile& file, const std::string& from, const std::string& to) {
  std::string& document = file.metadata.at("octet");
  const size_t place = document.find(from);
  ASSERT_NE(place, std::string::npos) << from << " in " << document;
  document.replace(place, from.size(), to);
}

}  // namespace octet
