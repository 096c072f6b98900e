// SPDX-License-Identifier: Apache-2.0
// Detectors whose outputs are their biases, and a network of segmentation, for tests of boxes and masks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "src/net/int8_graph.h"

namespace octet::test {

/// A detector for images of height x width whose outputs are convolutions of the input with weights of 0: for each
/// stride boxes, objectness (of yolox) and classes, all of bias 0.
inline Int8Graph detector(BoxHeadKind kind, int height, int width, const std::vector<int>& strides, int classes) {
  Int8Graph graph;
  graph.name = "detector";
  Int8Node input;
  input.name = "image";
  input.shape = {3, height, width};
  input.out = {.scale = 1.0f / 64, .zero_point = 0, .quant_min = -128, .quant_max = 127};
  graph.nodes.push_back(input);
  graph.preprocessing = {.fit = Fit::letterbox_corner, .mean = {0, 0, 0}, .std = {1, 1, 1}};
  graph.boxes.emplace();
  graph.boxes->kind = kind;
  const auto add = [&](const char* name, int stride, int channels) {
    Int8Node node;
    node.name = std::string(name) + std::to_string(stride);
    node.op = Int8Op::conv2d;
    node.inputs = {0};
    node.window = {stride, stride, stride, stride, {}, 1, 1};
    node.shape = {channels, height / stride, width / stride};
    node.out = {.scale = 1, .zero_point = 0, .quant_min = -128, .quant_max = 127};
    node.float_output = true;
    const auto count = static_cast<size_t>(channels);
    node.weight.resize(count * static_cast<size_t>(stride) * static_cast<size_t>(stride) * 3);
    node.weight_scale.resize(count, 1);
    node.multiplier.resize(count, 1);
    node.bias.resize(count);
    graph.outputs.push_back(static_cast<int>(graph.nodes.size()));
    graph.nodes.push_back(node);
    return static_cast<int>(graph.outputs.size()) - 1;
  };
  const bool yolox = kind == BoxHeadKind::yolox;
  for (const int stride : strides) {
    BoxHead::Level level{.stride = stride};
    level.classes = add("classes", stride, classes);
    level.boxes = add("boxes", stride, yolox ? 4 : 4 * kDistanceBins);
    if (yolox) level.objectness = add("objectness", stride, 1);
    graph.boxes->levels.push_back(level);
  }
  return graph;
}

/// The node of an output.
inline Int8Node& output_of(Int8Graph& graph, int place) {
  return graph.nodes[static_cast<size_t>(graph.outputs[static_cast<size_t>(place)])];
}

/// A detector yolox of 32 x 32 pixels and one cell, which finds class 1 of two with score sigmoid(4) * sigmoid(2) in
/// the box x 8, y 4, width 16, height 8.
inline Int8Graph one_box_detector() {
  Int8Graph graph = detector(BoxHeadKind::yolox, 32, 32, {32}, 2);
  const BoxHead::Level& level = graph.boxes->levels.front();
  output_of(graph, level.boxes).bias = {0.5f, 0.25f, -0.69314718f, -1.38629436f};  // log of 1/2 and 1/4
  output_of(graph, level.objectness).bias = {4};
  output_of(graph, level.classes).bias = {-3, 2};
  graph.class_names = {"cat", "dog"};
  return graph;
}

/// A network for images of 16 x 32 pixels that gives classes of 8 x 16: 1 where four pixels are bright, else 0.
inline Int8Graph brightness_segmenter() {
  Int8Graph graph = detector(BoxHeadKind::yolox, 16, 32, {2}, 2);
  graph.boxes.reset();
  graph.outputs = {1};
  graph.nodes.resize(2);
  Int8Node& node = graph.nodes[1];
  std::fill(node.weight.begin() + static_cast<long>(node.weight.size() / 2), node.weight.end(), int8_t{1});
  node.bias = {0, -12 * 32};  // codes are 0 to 64
  graph.class_names = {"dark", "light"};
  return graph;
}

}  // namespace octet::test
