// SPDX-License-Identifier: Apache-2.0
#include "src/detect/decode.h"

#include <fmt/format.h>

#include <cstring>
#include <unordered_map>

#include "src/base/error.h"
#include "src/net/shapes.h"

namespace octet {
namespace {

/// Before suppression at most so many detections of an image are kept, as YOLOX and Ultralytics do: it bounds the time.
constexpr size_t kMostCandidates = 30000;

constexpr float kMostExponent = 20;  ///< of a box's size in strides: beyond it is larger than any image

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// The real values of one image's output, [cells, channels].
class Values {
 public:
  Values(const BoxDecoder& decoder, const OutputPointers& outputs, int index, int place)
      : output_(decoder.outputs[static_cast<size_t>(place)]),
        data_(outputs[static_cast<size_t>(place)] + static_cast<size_t>(index) * output_.image_bytes()) {}

  const Shape& shape() const { return output_.shape; }

  float operator()(int cell, int channel) const {
    const size_t at = static_cast<size_t>(cell) * static_cast<size_t>(shape().c) + static_cast<size_t>(channel);
    if (const auto& codes = output_.codes)
      return dequantize(codes->is_signed() ? static_cast<int8_t>(data_[at]) : data_[at], *codes);
    float value;
    std::memcpy(&value, data_ + at * sizeof(value), sizeof(value));
    return value;
  }

 private:
  const BoxDecoder::Output& output_;
  const uint8_t* data_;
};

/// Returns the box of a cell of a head yolox, in cells.
Box yolox_box(const Values& values, int cell, int x, int y) {
  const auto size = [&](int channel) { return std::exp(std::min(values(cell, channel), kMostExponent)); };
  const double width = size(2), height = size(3);
  return {x + values(cell, 0) - width / 2, y + values(cell, 1) - height / 2, width, height};
}

/// Returns the mean of 0..15 under the softmax of the channels of one side.
double mean_distance(const Values& values, int cell, int side) {
  const int first = side * kDistanceBins;
  float largest = values(cell, first);
  for (int bin = 1; bin < kDistanceBins; ++bin) largest = std::max(largest, values(cell, first + bin));
  double sum = 0, weighted = 0;
  for (int bin = 0; bin < kDistanceBins; ++bin) {
    const double e = std::exp(values(cell, first + bin) - largest);
    sum += e;
    weighted += bin * e;
  }
  return weighted / sum;
}

/// Returns the box of a cell of a head yolo_dfl, in cells.
Box dfl_box(const Values& values, int cell, int x, int y) {
  const auto distance = [&](int side) { return mean_distance(values, cell, side); };
  const double left = distance(0), top = distance(1);
  return {x + 0.5 - left, y + 0.5 - top, left + distance(2), top + distance(3)};
}

/// Calls take(class, score) for the classes of a cell, whose score is `factor` times the sigmoid of the class's value.
template <class Take>
void for_classes(const Values& values, int cell, double factor, const BoxOptions& options, const Take& take) {
  if (factor < options.score_threshold) return;
  const auto offer = [&](int c) {
    if (const double score = factor * sigmoid(values(cell, c)); score >= options.score_threshold) take(c, score);
  };
  const int classes = values.shape().c;
  if (!options.every_class) {
    int best = 0;
    for (int c = 1; c < classes; ++c)
      if (values(cell, c) > values(cell, best)) best = c;
    return offer(best);
  }
  const double share = options.score_threshold / factor;  // what the sigmoid must reach; the logarithm leaves a margin
  const double lowest = std::log(share / (1 - share)) - 1e-6;
  for (int c = 0; c < classes; ++c)
    if (!(values(cell, c) < lowest)) offer(c);
}

void decode_level(const BoxDecoder& decoder, const BoxHead::Level& level, const OutputPointers& outputs, int index,
                  const BoxOptions& options, std::vector<Detection>& to) {
  const Values boxes(decoder, outputs, index, level.boxes), classes(decoder, outputs, index, level.classes);
  const bool yolox = decoder.head.kind == BoxHeadKind::yolox;
  const Values objectness(decoder, outputs, index, yolox ? level.objectness : level.boxes);
  for (int y = 0, cell = 0; y < boxes.shape().h; ++y)
    for (int x = 0; x < boxes.shape().w; ++x, ++cell) {
      const double factor = yolox ? sigmoid(objectness(cell, 0)) : 1;
      for_classes(classes, cell, factor, options, [&](int c, double score) {
        const Box box = yolox ? yolox_box(boxes, cell, x, y) : dfl_box(boxes, cell, x, y);
        const double s = level.stride;
        to.push_back({{s * box.x, s * box.y, s * box.width, s * box.height}, c, score});
      });
    }
}

/// Returns a box of the network's input in pixels of the image, clipped to it.
Box in_image(const Box& box, const Placement& at, const ImageSize& image) {
  const auto clipped = [](double value, double most) { return std::clamp(value, 0.0, most); };
  const double left = clipped((box.x - at.left) / at.scale_x, image.width);
  const double top = clipped((box.y - at.top) / at.scale_y, image.height);
  const double right = clipped((box.x + box.width - at.left) / at.scale_x, image.width);
  const double bottom = clipped((box.y + box.height - at.top) / at.scale_y, image.height);
  return {left, top, right - left, bottom - top};
}

}  // namespace

BoxOptions box_options(const BoxHead& head) {
  return {.score_threshold = head.score_threshold, .iou_threshold = head.iou_threshold, .max_boxes = head.max_boxes};
}

BoxOptions measuring_options(const BoxHead& head) {
  return {.score_threshold = 0.001,
          .iou_threshold = head.kind == BoxHeadKind::yolox ? 0.65 : 0.7,
          .max_boxes = 0,
          .every_class = true};
}

void require_boxes(const Int8Graph& graph) {
  if (graph.boxes) return;
  throw usage_error(fmt::format(
      "{}: its checkpoint does not say how its outputs become boxes; octet quantize --preset yolox or yolo writes that "
      "for the heads of YOLOX, YOLOv8 and YOLO11",
      graph.name));
}

BoxDecoder box_decoder(const Int8Graph& graph) {
  BoxDecoder decoder{*graph.boxes, {}, evaluation_transform(graph.input_shape(), graph.preprocessing)};
  for (const int output : graph.outputs) {
    const Int8Node& node = graph.nodes[static_cast<size_t>(output)];
    decoder.outputs.push_back({node.shape, node.float_output ? std::nullopt : std::optional(node.out)});
  }
  return decoder;
}

BoxDecoder box_decoder(const Graph& graph, const BoxHead& head, const Transform& transform) {
  BoxDecoder decoder{head, {}, transform};
  for (const int output : graph.outputs)
    decoder.outputs.push_back({graph.nodes[static_cast<size_t>(output)].shape, std::nullopt});
  return decoder;
}

std::vector<Detection> decode_boxes(const Int8Graph& graph, const BatchOutputs& outputs, int index,
                                    const ImageSize& image, const BoxOptions& options) {
  return decode_boxes(box_decoder(graph), outputs, index, image, options);
}

std::vector<Detection> decode_boxes(const BoxDecoder& decoder, const BatchOutputs& outputs, int index,
                                    const ImageSize& image, const BoxOptions& options) {
  OutputPointers pointers;
  for (const std::vector<uint8_t>& output : outputs) pointers.push_back(output.data());
  return decode_boxes(decoder, pointers, index, image, options);
}

std::vector<Detection> decode_boxes(const BoxDecoder& decoder, const OutputPointers& outputs, int index,
                                    const ImageSize& image, const BoxOptions& options) {
  std::vector<Detection> found;
  for (const BoxHead::Level& level : decoder.head.levels) decode_level(decoder, level, outputs, index, options, found);
  found = suppress(std::move(found), options.iou_threshold);
  const Placement at = placement(image, decoder.transform);
  for (Detection& detection : found) detection.box = in_image(detection.box, at, image);
  std::erase_if(found, [](const Detection& detection) { return detection.box.area() == 0; });  // only in the margin
  if (options.max_boxes > 0) found.resize(std::min(found.size(), static_cast<size_t>(options.max_boxes)));
  return found;
}

std::vector<Detection> suppress(std::vector<Detection> detections, double iou_threshold) {
  std::stable_sort(detections.begin(), detections.end(),
                   [](const Detection& a, const Detection& b) { return a.score > b.score; });
  detections.resize(std::min(detections.size(), kMostCandidates));
  std::vector<Detection> kept;
  std::unordered_map<int, std::vector<Box>> of_class;  // what is kept
  for (const Detection& detection : detections) {
    std::vector<Box>& others = of_class[detection.class_index];
    const bool hidden = std::any_of(others.begin(), others.end(), [&](const Box& box) {
      return intersection_over_union(box, detection.box) > iou_threshold;
    });
    if (hidden) continue;
    others.push_back(detection.box);
    kept.push_back(detection);
  }
  return kept;
}

bool gives_masks(const Int8Graph& graph) {
  const Int8Node& output = graph.nodes[static_cast<size_t>(graph.outputs.front())];
  const Shape& shape = output.shape;
  return graph.outputs.size() == 1 && output.float_output && shape.h * shape.w > 1 && shape.c <= kUnlabelled;
}

void require_masks(const Int8Graph& graph) {
  if (gives_masks(graph)) return;
  throw usage_error(fmt::format(
      "{} gives {}, no classes of pixels: of those one output gives float32 [classes, H, W], {} classes at most",
      graph.name, outputs_text(graph), kUnlabelled));
}

Image decode_mask(const Int8Graph& graph, const float* logits, const ImageSize& image) {
  const Shape &input = graph.input_shape(), &output = graph.nodes[static_cast<size_t>(graph.outputs.front())].shape;
  const Placement place = placement(image, evaluation_transform(input, graph.preprocessing));
  // Returns the row (or column) of the output at which one of the image lies, or -1.
  const auto at = [](int pixel, double scale, double first, int input_side, int output_side) {
    const double inside = first + scale * (pixel + 0.5);
    return inside < 0 || inside >= input_side ? -1 : static_cast<int>(inside * output_side / input_side);
  };
  Image mask{image.height, image.width, 1, {}};
  mask.pixels.assign(static_cast<size_t>(image.height) * image.width, kUnlabelled);
  for (int y = 0; y < image.height; ++y) {
    const int row = at(y, place.scale_y, place.top, input.h, output.h);
    for (int x = 0; x < image.width && row >= 0; ++x) {
      const int column = at(x, place.scale_x, place.left, input.w, output.w);
      if (column < 0) continue;
      const float* pixel = logits + (static_cast<size_t>(row) * output.w + column) * output.c;
      mask.pixels[static_cast<size_t>(y) * image.width + x] =
          static_cast<uint8_t>(std::max_element(pixel, pixel + output.c) - pixel);
    }
  }
  return mask;
}

}  // namespace octet
