// SPDX-License-Identifier: Apache-2.0
// octet inspect: what it shows of a checkpoint.
#include <nlohmann/json.hpp>

#include <algorithm>

#include "src/base/safetensors.h"
#include "src/net/checkpoint.h"
#include "src/net/zoo.h"
#include "src/quant/convert.h"
#include "src/quant/plan.h"
#include "tests/net/test_graphs.h"
#include "tests/tools/program.h"

namespace octet::test {
namespace {

class Inspect : public ToolTest {
 protected:
  void SetUp() override { checkpoint_ = random_checkpoint(); }
  std::string checkpoint_;
};

TEST_F(Inspect, ShowsEveryNode) {
  const Int8Graph graph = read_checkpoint(checkpoint_);
  const std::string text = octet({"inspect", checkpoint_}).out;
  const auto document = nlohmann::json::parse(octet({"inspect", checkpoint_, "--json"}).out);
  ASSERT_EQ(document.at("nodes").size(), graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    expect_part(text, "\n" + graph.nodes[i].name + " ");
    EXPECT_EQ(document["nodes"][i]["name"], graph.nodes[i].name);
    EXPECT_EQ(document["nodes"][i]["weights"], graph.nodes[i].weight.size());
  }
}

TEST_F(Inspect, ShowsAndChecksSparseWeights) {
  const Graph network = fuse(build_model({.name = "resnet8"}));
  const Int8Graph graph = random_int8_graph(network, {.sparsity = Sparsity::two_of_four}, 1);
  write_checkpoint(path("sparse.safetensors"), graph);
  const Answer answer = octet({"inspect", path("sparse.safetensors")});
  ASSERT_EQ(answer.code, 0) << answer.err;
  expect_part(answer.out, "(format 7)");
  expect_part(answer.out, "2:4 sparse: 9 of 10 layers with ");
  expect_part(answer.out, ", every group of four checked; ");
  expect_part(answer.out, "  2:4 ");
  const auto document = nlohmann::json::parse(octet({"inspect", path("sparse.safetensors"), "--json"}).out);
  for (const auto& node : document.at("nodes"))
    if (node.contains("sparsity")) {
      EXPECT_EQ(node["sparsity"], node["name"] == "conv1" ? "none" : "2:4");
    }
  TensorFile file = read_safetensors(path("sparse.safetensors"));
  std::fill_n(file.tensors.at("linear.weight").bytes.begin(), 3, std::byte{1});
  write_safetensors(path("sparse.safetensors"), file);
  expect_refusal(octet({"inspect", path("sparse.safetensors")}), 3,
                 {"'linear' (linear): 2:4 sparse, but more than two of the weights 0 to 3 are not 0"});
}

TEST_F(Inspect, ShowsNoControlCharactersOfAFile) {
  Int8Graph graph = every_op_graph();
  graph.name = "evil\x1b[2Jname";
  node_named(graph, "conv1").name = "con\nv\t1\x7f";
  node_named(graph, "lookup").function = "si\x1b]0;title\alu";
  graph.recipe_hash = "0\x1b";
  graph.accuracies = {{"to\xc2\x9bp1 caf\u00e9", 0.5}};
  write_checkpoint(path("evil.safetensors"), graph);
  const Answer answer = octet({"inspect", path("evil.safetensors")});
  ASSERT_EQ(answer.code, 0) << answer.err;
  for (const char* shown :
       {"evil?[2Jname", "\ncon?v?1? ", " con?v?1?  ", "lookup si?]0;title?lu", "recipe 0?", "to?p1 caf\u00e9: 50.00"})
    expect_part(answer.out, shown);
  for (const char c : answer.out) EXPECT_TRUE(c == '\n' || (c != '\x7f' && static_cast<unsigned char>(c) >= ' '));
  const Answer json = octet({"inspect", path("evil.safetensors"), "--json"});
  EXPECT_EQ(nlohmann::json::parse(json.out).at("name"), graph.name);
  EXPECT_EQ(json.out.find('\x1b'), std::string::npos);
}

TEST_F(Inspect, ShowsWhatItsNodesAreLike) {
  Int8Graph graph = every_op_graph();
  graph.class_names.clear();
  graph.nodes.push_back(node_named(graph, "max_pool"));  // of the same concat, higher than wide
  graph.nodes.back().name = "high";
  graph.nodes.back().window = {.kernel_h = 3, .kernel_w = 1, .stride_h = 3, .pad = {1, 0, 1, 0}};
  graph.nodes.back().shape = {8, 2, 6};
  graph.outputs.push_back(static_cast<int>(graph.nodes.size()) - 1);
  write_checkpoint(path("every.safetensors"), graph);
  const Answer answer = octet({"inspect", path("every.safetensors")});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const auto document = nlohmann::json::parse(octet({"inspect", path("every.safetensors"), "--json"}).out);
  const auto expect_node = [&](const std::string& name, const std::string& text, const nlohmann::json& attributes) {
    const size_t line = answer.out.find("\n" + name + " ");
    ASSERT_NE(line, std::string::npos) << name;
    expect_part(answer.out.substr(line + 1, answer.out.find('\n', line + 1) - line), text);
    for (const auto& node : document.at("nodes")) {
      if (node["name"] != name) continue;
      for (const auto& [key, value] : attributes.items()) EXPECT_EQ(node.value(key, nlohmann::json()), value) << name;
    }
  };
  const auto window = [](std::vector<int> kernel, std::vector<int> stride, std::vector<int> pad, int dilation) {
    return nlohmann::json{{"kernel", kernel}, {"stride", stride}, {"pad", pad}, {"dilation", {dilation, dilation}}};
  };
  expect_node("conv1", "  3x3 pad 1  ", {{"window", window({3, 3}, {1, 1}, {1, 1, 1, 1}, 1)}, {"groups", 1}});
  expect_node("conv2", "  3x3 pad 1,2,3,2 dilation 2 2 groups  ",
              {{"window", window({3, 3}, {1, 1}, {1, 2, 3, 2}, 2)}, {"groups", 2}});
  expect_node("high", "  3x1/3x1 pad 1x0  ", {{"window", window({3, 1}, {3, 1}, {1, 0, 1, 0}, 1)}});
  expect_node("subsample_pad", "  1x1/2  ", {{"window", window({1, 1}, {2, 2}, {0, 0, 0, 0}, 1)}});
  expect_node("slice", "  channels 3..6  ", {{"first_channel", 3}});
  expect_node("resize", "  times 2x3  ", {{"factor", {2, 3}}});
  expect_node("resize_bilinear", "  times 2x3  ", {{"factor", {2, 3}}});
  expect_node("channel_shuffle", "  4 groups  ", {{"groups", 4}});
  expect_node("depth_to_space", "  times 1x2  ", {{"factor", {1, 2}}});
  expect_node("matmul", "  2 groups transposed  ", {{"groups", 2}, {"transposed", true}});
  expect_node("softmax", "  2 groups  ", {{"groups", 2}});
  expect_node("prelu", "  4 groups  ", {{"groups", 4}});
}

TEST_F(Inspect, SaysForWhichBatchItsKernelsAre) {
  expect_part(octet({"inspect", checkpoint_, "--device", "cpu"}).out, "\nkernels: engine cpu, batch 1\n");
  expect_part(octet({"inspect", checkpoint_, "--device", "cpu", "--batch", "4"}).out,
              "\nkernels: engine cpu, batch 4\n");
  EXPECT_EQ(nlohmann::json::parse(octet({"inspect", checkpoint_, "--batch", "4", "--json"}).out)["kernels_for_batch"],
            4);
}

}  // namespace
}  // namespace octet::test
