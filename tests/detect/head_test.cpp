// SPDX-License-Identifier: Apache-2.0
// Which outputs of a float network are a head's, and how a checkpoint keeps that.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/safetensors.h"
#include "src/net/checkpoint.h"
#include "src/net/graph.h"
#include "tests/detect/detector.h"
#include "tests/error_of.h"

namespace octet {
namespace {

/// A layer of a head: its branch is the convolution that it reads.
struct Layer {
  std::string name;
  int branch;
  int channels;
};

/// A network of 64 x 64 images with these layers at strides 16 and 8, in this order.
Graph network(const std::vector<Layer>& layers) {
  Graph graph;
  graph.name = "net";
  graph.nodes.push_back({.name = "image", .shape = {3, 64, 64}});
  for (const int stride : {16, 8}) {
    const int first = static_cast<int>(graph.nodes.size());
    for (int branch = 0; branch < 2; ++branch)
      graph.nodes.push_back({.name = "stem" + std::to_string(stride) + std::to_string(branch),
                             .op = Op::conv2d,
                             .inputs = {0},
                             .window = {stride, stride, stride, stride, {}, 1, 1},
                             .out_channels = 8});
    for (const Layer& layer : layers) {
      graph.outputs.push_back(static_cast<int>(graph.nodes.size()));
      graph.nodes.push_back({.name = layer.name + std::to_string(stride),
                             .op = Op::conv2d,
                             .inputs = {first + layer.branch},
                             .out_channels = layer.channels});
    }
  }
  infer_shapes(graph);
  return graph;
}

void expect_levels(const BoxHead& head, int boxes, int objectness, int classes, int outputs) {
  ASSERT_EQ(head.levels.size(), 2u);  // the smaller stride first, whose outputs come last
  EXPECT_EQ(head.levels[0],
            (BoxHead::Level{8, outputs + boxes, objectness < 0 ? -1 : outputs + objectness, outputs + classes}));
  EXPECT_EQ(head.levels[1], (BoxHead::Level{16, boxes, objectness, classes}));
}

TEST(FindBoxHead, OfYoloxByChannelsAndBranch) {
  expect_levels(find_box_head(network({{"c", 0, 80}, {"b", 1, 4}, {"o", 1, 1}}), BoxHeadKind::yolox), 1, 2, 0, 3);
  // One class, four classes: the branch tells which is which.
  expect_levels(find_box_head(network({{"b", 1, 4}, {"c", 0, 1}, {"o", 1, 1}}), BoxHeadKind::yolox), 0, 2, 1, 3);
  expect_levels(find_box_head(network({{"c", 1, 4}, {"o", 0, 1}, {"b", 0, 4}}), BoxHeadKind::yolox), 2, 1, 0, 3);
}

TEST(FindBoxHead, OfDistancesByChannelsOrName) {
  expect_levels(find_box_head(network({{"b", 0, 64}, {"c", 1, 80}}), BoxHeadKind::yolo_dfl), 0, -1, 1, 2);
  expect_levels(find_box_head(network({{"h.cv3.", 0, 64}, {"h.cv2.", 1, 64}}), BoxHeadKind::yolo_dfl), 1, -1, 0, 2);
}

TEST(FindBoxHead, WhatFitsNoHeadOrTwoWaysIsRefused) {
  const auto refusal = [](const std::vector<Layer>& layers, BoxHeadKind kind) {
    return error_of([&] { find_box_head(network(layers), kind); });
  };
  const std::string one_branch = refusal({{"b", 1, 4}, {"c", 1, 1}, {"o", 1, 1}}, BoxHeadKind::yolox);
  EXPECT_NE(one_branch.find("no head yolox: the outputs of stride 8 are 'b8' 4x8x8, 'c8' 1x8x8, 'o8' 1x8x8"),
            std::string::npos)
      << one_branch;
  EXPECT_NE(refusal({{"b", 0, 64}, {"c", 1, 64}}, BoxHeadKind::yolo_dfl), "");
  EXPECT_NE(refusal({{"b", 0, 64}, {"c", 1, 80}}, BoxHeadKind::yolox), "");
  EXPECT_NE(refusal({{"b", 1, 4}, {"o", 1, 1}}, BoxHeadKind::yolox), "");
  EXPECT_NE(refusal({{"b", 0, 32}, {"c", 1, 80}}, BoxHeadKind::yolo_dfl), "");
  Graph probabilities = network({{"c", 0, 80}, {"b", 1, 4}, {"o", 1, 1}});
  probabilities.nodes.push_back({.name = "p", .op = Op::lookup, .inputs = {probabilities.outputs[0]}});
  probabilities.outputs[0] = static_cast<int>(probabilities.nodes.size()) - 1;
  infer_shapes(probabilities);
  EXPECT_NE(error_of([&] { find_box_head(probabilities, BoxHeadKind::yolox); }).find("output 'p' is a lookup"),
            std::string::npos);
}

/// The checkpoint `bytes` with `from` replaced by `to` in its document.
std::string edited(const std::string& bytes, const std::string& from, const std::string& to) {
  TensorFile file = parse_safetensors(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), "x");
  std::string& document = file.metadata.at("octet");
  const size_t place = document.find(from);
  EXPECT_NE(place, std::string::npos) << from << " in " << document;
  if (place != std::string::npos) document.replace(place, from.size(), to);
  return serialize_safetensors(file);
}

Int8Graph parsed(const std::string& bytes) {
  return parse_checkpoint(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), "x");
}

/// Since version 13.
TEST(BoxHeadInCheckpoint, ComesBack) {
  for (const BoxHeadKind kind : {BoxHeadKind::yolox, BoxHeadKind::yolo_dfl}) {
    Int8Graph graph = test::detector(kind, 32, 64, {8, 16}, 3);
    graph.class_names = {"a", "b", "c"};
    graph.boxes->score_threshold = 0.3f;
    graph.boxes->iou_threshold = 0.6f;
    graph.boxes->max_boxes = 7;
    const std::string bytes = serialize_checkpoint(graph);
    const Int8Graph read = parsed(bytes);
    EXPECT_EQ(checkpoint_version(read), 13);
    EXPECT_EQ(read.boxes, graph.boxes);
    EXPECT_EQ(read.class_names, graph.class_names);
    EXPECT_EQ(serialize_checkpoint(read), bytes);
  }
}

TEST(BoxHeadInCheckpoint, WhatDoesNotFitTheOutputsIsRefused) {
  const Int8Graph good = test::detector(BoxHeadKind::yolox, 32, 64, {8, 16}, 3);
  const auto refusal = [&](const std::function<void(Int8Graph&)>& change) {
    Int8Graph graph = good;
    change(graph);
    return error_of([&] { validate(graph); });
  };
  EXPECT_EQ(refusal([](Int8Graph&) {}), "");
  EXPECT_NE(refusal([](Int8Graph& g) { g.boxes->levels.clear(); }), "");
  EXPECT_NE(refusal([](Int8Graph& g) { g.boxes->levels[0].boxes = 6; }).find("output 6 of 6"), std::string::npos);
  EXPECT_NE(refusal([](Int8Graph& g) { std::swap(g.boxes->levels[0].boxes, g.boxes->levels[1].boxes); }), "");
  EXPECT_NE(refusal([](Int8Graph& g) { g.boxes->levels[0].stride = 16; }), "");
  EXPECT_NE(refusal([](Int8Graph& g) { g.boxes->kind = BoxHeadKind::yolo_dfl; }), "");
  EXPECT_NE(refusal([](Int8Graph& g) { g.boxes->iou_threshold = 1.5f; }), "");
  EXPECT_NE(refusal([](Int8Graph& g) { g.boxes->max_boxes = 0; }), "");
  EXPECT_NE(refusal([](Int8Graph& g) {
              g.class_names = {"a", "b"};
            }).find("2 class names for boxes of 3 classes"),
            std::string::npos);
  const std::string bytes = serialize_checkpoint(good);
  const auto of_file = [&](const char* from, const char* to) {
    return error_of([&] { parsed(edited(bytes, from, to)); });
  };
  EXPECT_NE(of_file("\"head\":\"yolox\"", "\"head\":\"ssd\"").find("'ssd' is none of yolox, yolo_dfl"),
            std::string::npos);
  EXPECT_NE(of_file("\"format_version\":13", "\"format_version\":12"), "");
  EXPECT_NE(of_file("\"objectness\":2,", ""), "");
}

}  // namespace
}  // namespace octet
