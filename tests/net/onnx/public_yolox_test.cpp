// SPDX-License-Identifier: Apache-2.0
// The zoo's YOLOX-Nano computes what the file computes that its authors published.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "src/net/onnx/onnx.h"
#include "src/net/zoo.h"
#include "tests/net/onnx/outputs.h"
#include "tests/source_dir.h"

namespace octet::test {
namespace {

constexpr int kPixels = 416;

ImportedNetwork up_to_the_head(const std::string& file) {
  try {
    return import_onnx(file);
  } catch (const OnnxEndsTooLate& late) {
    return import_onnx(file, late.end_at);
  }
}

/// The nodes with weights, in the order in which they run, but for windows of 2x1 and 1x2, which pick the pixels of the
/// file's first layer.
std::vector<int> layers_of(const Graph& graph) {
  std::vector<int> layers;
  for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i)
    if (const Node& node = graph.nodes[i]; has_weight(node.op) && node.window.kernel_h * node.window.kernel_w != 2)
      layers.push_back(i);
  return layers;
}

/// The values of each output by the place of its layer among all layers.
std::map<int, at::Tensor> by_layer(const Graph& graph, const at::Tensor& values) {
  const std::vector<int> layers = layers_of(graph);
  std::map<int, at::Tensor> result;
  int64_t begin = 0;
  for (const int output : graph.outputs) {
    const int64_t count = graph.nodes[output].shape.elements();
    const auto place = std::find(layers.begin(), layers.end(), output);
    result[static_cast<int>(place - layers.begin())] = values.narrow(1, begin, count).contiguous();
    begin += count;
  }
  return result;
}

TEST(PublicYolox, IsTheZoosNetwork) {
  const std::string data = shared_data();
  if (data.empty()) GTEST_SKIP() << "no shared data on this machine";
  const ImportedNetwork published = up_to_the_head(data + "/weights/yolox_nano_coco.onnx");
  const Graph zoo = build_model({.name = "yolox_nano", .input = {3, kPixels, kPixels}, .classes = 80, .folded = true});
  const std::vector<int> theirs = layers_of(published.graph), ours = layers_of(zoo);
  ASSERT_EQ(theirs.size(), ours.size());
  TensorFile renamed;
  for (size_t i = 0; i < ours.size(); ++i)
    for (const char* part : {".weight", ".bias"})
      renamed.tensors[zoo.nodes[ours[i]].name + part] =
          published.weights.tensors.at(published.graph.nodes[theirs[i]].name + part);
  const std::string path =
      (std::filesystem::temp_directory_path() / ("octet_yolox_" + std::to_string(getpid()) + ".safetensors")).string();
  write_safetensors(path, renamed);
  Weights weights = initial_weights(zoo, 1);
  load_weights(weights, zoo, path);
  std::filesystem::remove(path);

  // In double: 113 layers after each other would add up the rounding of sums of another order.
  const at::NoGradGuard no_grad;
  for (auto& [name, weight] : weights) weight = weight.to(at::kDouble);
  Weights given;
  for (const auto& [name, data] : published.weights.tensors)
    given[name] = tensor(to_float(data), data.shape).to(at::kDouble);
  const at::Tensor image = at::rand({1, 3, kPixels, kPixels}).to(at::kDouble) * 255;
  const std::map<int, at::Tensor> expected = by_layer(published.graph, walk(published.graph, given, image, {}));
  const std::map<int, at::Tensor> found = by_layer(zoo, walk(zoo, weights, image, {}));
  ASSERT_EQ(found.size(), 9U);
  for (const auto& [layer, values] : found) {
    ASSERT_TRUE(expected.contains(layer)) << layer;
    EXPECT_LT((values - expected.at(layer)).abs().max().item<double>(), 1e-10 * values.abs().max().item<double>());
  }
}

}  // namespace
}  // namespace octet::test
