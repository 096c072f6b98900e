// SPDX-License-Identifier: Apache-2.0
// The float network out, and in again.
#include <ATen/ATen.h>

#include "src/net/onnx/onnx.h"
#include "src/net/zoo.h"
#include "tests/net/onnx/outputs.h"

namespace octet {
namespace {

using namespace test;

/// Channels split, attention, pixels repeated, padding of one side.
ModelSpec picks() {
  ModelSpec spec;
  spec.name = "graph";
  spec.graph = {{"conv", "conv2d", {}, {{"out_channels", 6}, {"kernel", 3}, {"stride", 2}, {"pad_bottom", 1}}},
                {"slopes", "prelu", {}, {{"groups", 6}}},
                {"high", "slice", {"slopes"}, {{"first_channel", 2}, {"out_channels", 4}}},
                {"scores", "matmul", {"high", "high"}, {{"groups", 2}, {"transposed", 1}, {"scale", 0.75}}},
                {"shares", "softmax", {}, {{"groups", 2}}},
                {"mixed", "matmul", {"shares", "high"}, {{"groups", 2}}},
                {"up", "resize", {}, {{"factor", 2}}},
                {"smooth", "resize_bilinear", {}, {{"factor", 2}}},
                {"mix", "channel_shuffle", {}, {{"groups", 2}}},
                {"pixels", "depth_to_space", {}, {{"factor", 2}}},
                {"pool", "max_pool", {}, {{"kernel", 3}, {"stride", 2}, {"pad_right", 1}}},
                {"gap", "global_avg_pool", {}, {}},
                {"one", "prelu", {}, {}},
                {"fc", "linear", {}, {{"out_channels", 10}}}};
  return spec;
}

TEST(OnnxRoundTrip, TheFloatNetworkComesBackAsItWas) {
  for (const std::string name : {"resnet8", "resnet20", "mobilenet_v2", "squeezenet1_1", "small_cnn",
                                 "mobilenet_v3_large", "efficientnet_b0", "unet2", "graph"}) {
    ModelSpec spec = name == "graph" ? picks() : ModelSpec{.name = name};
    spec.input = {3, 32, 32};
    spec.dropout = 0.2;
    if (name == "resnet20") spec.shortcut = 'A';
    if (name == "unet2") spec.width = 0.125;
    Graph graph = build_model(spec);
    for (Node& node : graph.nodes)  // one whose double is a float, and that is not the usual one
      if (spec.name == "resnet8" && node.op == Op::batch_norm) node.epsilon = 0x1p-10;
    const Weights weights = initial_weights(graph, 2);
    TensorFile file;
    for (const auto& [key, value] : weights) {
      const at::Tensor plain = value.detach().contiguous();
      file.tensors[key] = float_tensor(plain.sizes().vec(), plain.const_data_ptr<float>());
    }
    for (const int opset : {13, 21}) {
      const ImportedNetwork network = imported(write_float(graph, file, {.mean = {0}, .std = {1}}, opset));
      EXPECT_EQ(network.opset, opset);
      const auto shortcuts = [](const Graph& g) {
        std::vector<std::string> names;
        for (const Node& node : g.nodes)
          if (node.op == Op::subsample_pad) names.push_back(node.name);
        return names;
      };
      EXPECT_EQ(shortcuts(network.graph), shortcuts(graph)) << name;
      EXPECT_EQ(shortcuts(graph).size(), name == "resnet20" ? 2u : 0u);
      for (const auto& [key, value] : file.tensors) {
        ASSERT_TRUE(network.weights.tensors.contains(key)) << name << " " << key;
        EXPECT_EQ(network.weights.tensors.at(key), value) << name << " " << key;
      }
      const at::Tensor x = images(3, 32, 32);
      const at::NoGradGuard no_grad;
      EXPECT_TRUE(at::equal(outputs(network, x), walk(graph, weights, x, {}))) << name;
    }
  }
}

TEST(OnnxRoundTrip, SeveralOutputsComeBackInTheirOrder) {
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"fc", "up", "gap"}, std::vector<std::string>{"up", "gap", "fc"}}) {
    ModelSpec spec = picks();
    spec.input = {3, 32, 32};
    spec.outputs = names;
    const Graph graph = build_model(spec);
    const Weights weights = initial_weights(graph, 2);
    TensorFile file;
    for (const auto& [key, value] : weights)
      file.tensors[key] = float_tensor(value.sizes().vec(), value.detach().contiguous().const_data_ptr<float>());
    const ImportedNetwork network = imported(write_float(graph, file, {.mean = {0}, .std = {1}}, 13));
    ASSERT_EQ(network.graph.outputs.size(), names.size());
    for (size_t i = 0; i < names.size(); ++i)
      EXPECT_EQ(network.graph.nodes[static_cast<size_t>(network.graph.outputs[i])].shape,
                graph.nodes[static_cast<size_t>(graph.outputs[i])].shape)
          << names[i];
    const at::Tensor x = images(3, 32, 32);
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(at::equal(outputs(network, x), walk(graph, weights, x, {}))) << names[0];
  }
}

}  // namespace
}  // namespace octet
