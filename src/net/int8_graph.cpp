// SPDX-License-Identifier: Apache-2.0
#include "src/net/int8_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/net/op_traits.h"
#include "src/net/shapes.h"

namespace octet {

Int8Node int8_node(const Node& node, Int8Op op) {
  Int8Node result;
  result.name = node.name;
  result.op = op;
  result.window = node.window;
  result.groups = node.groups;
  result.transposed = node.transposed;
  result.first_channel = node.first_channel;
  result.factor_h = node.factor_h, result.factor_w = node.factor_w;
  result.shape = node.shape;
  return result;
}

bool is_classifier(const Int8Graph& graph) {
  if (graph.outputs.size() != 1) return false;
  const Int8Node& output = graph.nodes[static_cast<size_t>(graph.outputs[0])];
  return output.float_output && output.shape.h == 1 && output.shape.w == 1;
}

int Int8Graph::classes() const {
  if (is_classifier(*this)) return nodes[static_cast<size_t>(outputs[0])].shape.c;
  throw usage_error(
      fmt::format("{} gives {}; a classifier gives one output, float32 [classes, 1, 1]", name, outputs_text(*this)));
}

long multiply_adds(const Int8Graph& graph) {
  long total = 0;
  for (const Int8Node& node : graph.nodes) {
    if (node.op == Int8Op::matmul)
      total += node.shape.elements() * (graph.nodes[static_cast<size_t>(node.inputs[0])].shape.c / node.groups);
    if (!has_weight(node.op)) continue;
    // Every output channel owns weight.size() / K weights, each used once for every output pixel.
    total += static_cast<long>(node.weight.size()) * node.shape.h * node.shape.w;
  }
  return total;
}

std::string code_type(const QParams& q) {
  return (q.is_signed() ? "s" : "u") + std::to_string(std::bit_width(static_cast<unsigned>(q.quant_max - q.quant_min)));
}

std::vector<uint8_t> input_table(const Int8Graph& graph, int channel) {
  const auto c = static_cast<size_t>(channel);
  const float mean = graph.preprocessing.mean.at(c);
  const float std = graph.preprocessing.std.at(c);
  const QParams& out = graph.nodes.front().out;
  std::vector<uint8_t> table(256);
  for (size_t pixel = 0; pixel < table.size(); ++pixel) {
    table[pixel] = static_cast<uint8_t>(quantize(normalize_pixel(static_cast<uint8_t>(pixel), mean, std), out));
  }
  return table;
}

// The head of a detector.
namespace {

/// The outputs of one size, by their places in Graph::outputs.
using SameSize = std::vector<int>;

const Node& output_node(const Graph& graph, int place) {
  return graph.nodes[static_cast<size_t>(graph.outputs[static_cast<size_t>(place)])];
}

std::string described(const Graph& graph, const SameSize& outputs) {
  std::string text;
  for (const int place : outputs) {
    const Node& node = output_node(graph, place);
    text += fmt::format("{}'{}' {}x{}x{}", text.empty() ? "" : ", ", printable(node.name), node.shape.c, node.shape.h,
                        node.shape.w);
  }
  return text;
}

/// Returns the outputs by stride, each a whole number of pixels of the input.
std::map<int, SameSize> by_stride(const Graph& graph) {
  std::map<int, SameSize> result;
  const Shape& input = graph.nodes.front().shape;
  for (int place = 0; place < static_cast<int>(graph.outputs.size()); ++place) {
    const Node& node = output_node(graph, place);
    if (node.op != Op::conv2d)
      throw usage_error(
          fmt::format("output '{}' is a {}; boxes are decoded from a head's last convolutions, which "
                      "--outputs names",
                      printable(node.name), op_name(node.op)));
    const int stride = input.h / node.shape.h;
    if (stride * node.shape.h != input.h || stride * node.shape.w != input.w)
      throw usage_error(fmt::format("output {} has no whole stride in an input of {}x{}", described(graph, {place}),
                                    input.h, input.w));
    result[stride].push_back(place);
  }
  return result;
}

/// Returns the only level that the outputs can be, or none.
std::optional<BoxHead::Level> yolox_level(const Graph& graph, SameSize outputs) {
  std::vector<BoxHead::Level> possible;
  const auto channels = [&](int place) { return output_node(graph, place).shape.c; };
  if (outputs.size() != 3) return std::nullopt;
  do {
    const auto [boxes, objectness, classes] = std::array{outputs[0], outputs[1], outputs[2]};
    const bool one_branch = output_node(graph, boxes).inputs == output_node(graph, objectness).inputs;
    if (channels(boxes) == 4 && channels(objectness) == 1 && one_branch)
      possible.push_back({.boxes = boxes, .objectness = objectness, .classes = classes});
  } while (std::next_permutation(outputs.begin(), outputs.end()));
  return possible.size() == 1 ? std::optional(possible.front()) : std::nullopt;
}

/// Ultralytics' modules cv2 and cv3 of a head give boxes and classes, which tells them apart where both have 64
/// channels.
std::optional<BoxHead::Level> dfl_level(const Graph& graph, const SameSize& outputs) {
  constexpr int kChannels = 4 * kDistanceBins;
  if (outputs.size() != 2) return std::nullopt;
  const auto channels = [&](int place) { return output_node(graph, place).shape.c; };
  const auto named = [&](int place, const char* part) {
    return output_node(graph, place).name.find(part) != std::string::npos;
  };
  std::vector<BoxHead::Level> possible;
  for (const auto& [boxes, classes] : {std::pair{outputs[0], outputs[1]}, std::pair{outputs[1], outputs[0]}})
    if (channels(boxes) == kChannels &&
        (channels(classes) != kChannels || (named(boxes, "cv2") && named(classes, "cv3"))))
      possible.push_back({.boxes = boxes, .classes = classes});
  return possible.size() == 1 ? std::optional(possible.front()) : std::nullopt;
}

}  // namespace

BoxHead find_box_head(const Graph& graph, BoxHeadKind kind) {
  BoxHead head;
  head.kind = kind;
  // Of the programs that show boxes: YOLOX's demo, Ultralytics' predict.
  head.iou_threshold = kind == BoxHeadKind::yolox ? 0.45f : 0.7f;
  for (const auto& [stride, outputs] : by_stride(graph)) {
    std::optional<BoxHead::Level> level =
        kind == BoxHeadKind::yolox ? yolox_level(graph, outputs) : dfl_level(graph, outputs);
    if (!level)
      throw usage_error(fmt::format(
          "no head {}: the outputs of stride {} are {}, not {}", name_in(kBoxHeadKinds, kind), stride,
          described(graph, outputs),
          kind == BoxHeadKind::yolox
              ? "4 channels of boxes and 1 of objectness behind the same layer, and one for each class"
              : "64 channels of boxes, and one for each class (by the names cv2 and cv3 where both have 64)"));
    level->stride = stride;
    head.levels.push_back(*level);
  }
  const auto classes = [&](const BoxHead::Level& level) { return output_node(graph, level.classes).shape.c; };
  for (const BoxHead::Level& level : head.levels)
    if (classes(level) != classes(head.levels.front()))
      throw usage_error(fmt::format("no head {}: {} classes at stride {}, {} at stride {}",
                                    name_in(kBoxHeadKinds, kind), classes(head.levels.front()),
                                    head.levels.front().stride, classes(level), level.stride));
  return head;
}

int box_classes(const Int8Graph& graph) {
  const int place = graph.boxes->levels.front().classes;
  return graph.nodes[static_cast<size_t>(graph.outputs[static_cast<size_t>(place)])].shape.c;
}

void check_box_head(const Int8Graph& graph) {
  const BoxHead& head = *graph.boxes;
  if (head.levels.empty()) throw data_error("boxes: there are no levels");
  const auto shape = [&](int place) -> const Shape& {
    if (place < 0 || place >= static_cast<int>(graph.outputs.size()))
      throw data_error(fmt::format("boxes: output {} of {}", place, graph.outputs.size()));
    return graph.nodes[static_cast<size_t>(graph.outputs[static_cast<size_t>(place)])].shape;
  };
  const bool yolox = head.kind == BoxHeadKind::yolox;
  const int classes = shape(head.levels.front().classes).c;
  const Shape& input = graph.input_shape();
  for (const BoxHead::Level& level : head.levels) {
    const Shape& cells = shape(level.boxes);
    const auto fits = [&](int place, int channels) { return shape(place) == Shape{channels, cells.h, cells.w}; };
    if (!fits(level.boxes, yolox ? 4 : 4 * kDistanceBins) || !fits(level.classes, classes) ||
        (yolox && !fits(level.objectness, 1)) || (!yolox && level.objectness != -1))
      throw data_error(fmt::format("boxes: the outputs of stride {} are not those of a head {}", level.stride,
                                   name_in(kBoxHeadKinds, head.kind)));
    if (level.stride < 1 || level.stride != input.h / cells.h || level.stride * cells.h != input.h ||
        level.stride * cells.w != input.w)
      throw data_error(fmt::format("boxes: {}x{} cells of stride {} in an input of {}x{}", cells.h, cells.w,
                                   level.stride, input.h, input.w));
  }
  const auto within = [](float value) { return value >= 0 && value <= 1; };
  if (!within(head.score_threshold) || !within(head.iou_threshold) || head.max_boxes < 1)
    throw data_error(fmt::format("boxes: score_threshold {} and iou_threshold {} in 0..1, max_boxes {} of 1 or more",
                                 head.score_threshold, head.iou_threshold, head.max_boxes));
}

}  // namespace octet
