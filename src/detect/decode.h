// SPDX-License-Identifier: Apache-2.0
// From what the outputs of a detector or of a network of segmentation hold to boxes and classes in an image's own
// pixels, and to an image that shows them to people.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/core/quantize.h"
#include "src/data/dataset.h"
#include "src/data/transform.h"
#include "src/net/graph.h"
#include "src/net/int8_graph.h"

namespace octet {

struct BoxOptions {
  double score_threshold = 0;  ///< detections of a lower score are left out
  double iou_threshold = 1;    ///< of two of one class that overlap more, the one of the lower score is left out
  int max_boxes = 0;           ///< of an image; 0: all
  /// Whether a cell gives a box of each class whose score is high enough, as AP is measured, or only of the best.
  bool every_class = false;
};

/// Returns the options that the checkpoint has for people who look at the boxes.
BoxOptions box_options(const BoxHead& head);

/// Returns the options by which AP is measured: every class of a score of 0.001 or more, and the suppression that the
/// head's authors measure with (0.65 of YOLOX, 0.7 of YOLOv8).
BoxOptions measuring_options(const BoxHead& head);

/// Throws Error(usage) for a network whose checkpoint does not say how its outputs become boxes.
void require_boxes(const Int8Graph& graph);

/// What a Program gives: for each of graph.outputs [batch, height, width, channels] of codes or float32.
using BatchOutputs = std::vector<std::vector<uint8_t>>;

/// Outputs in memory of any other kind: where each begins.
using OutputPointers = std::vector<const uint8_t*>;

/// All that decoding needs to know of a network, float or int8.
struct BoxDecoder {
  struct Output {
    Shape shape;
    std::optional<QParams> codes;  ///< none: float32
    size_t image_bytes() const { return static_cast<size_t>(shape.elements()) * (codes ? 1 : sizeof(float)); }
  };
  BoxHead head;
  std::vector<Output> outputs;  ///< in the network's order
  Transform transform;          ///< how an image became the input
  int classes() const { return outputs[static_cast<size_t>(head.levels.front().classes)].shape.c; }
};

/// Returns the decoder of a checkpoint's network. graph.boxes must be there.
BoxDecoder box_decoder(const Int8Graph& graph);

/// Returns the decoder of a float network with that head, whose images go through `transform`.
BoxDecoder box_decoder(const Graph& graph, const BoxHead& head, const Transform& transform);

/// Returns the boxes of image `index` of the batch, the highest score first, clipped to the image, which had that size
/// before it became the input.
std::vector<Detection> decode_boxes(const BoxDecoder& decoder, const OutputPointers& outputs, int index,
                                    const ImageSize& image, const BoxOptions& options);
std::vector<Detection> decode_boxes(const BoxDecoder& decoder, const BatchOutputs& outputs, int index,
                                    const ImageSize& image, const BoxOptions& options);

/// Returns the boxes that box_decoder(graph) finds.
std::vector<Detection> decode_boxes(const Int8Graph& graph, const BatchOutputs& outputs, int index,
                                    const ImageSize& image, const BoxOptions& options);

/// Whether a network gives one output of float logits of up to 255 classes for each pixel.
bool gives_masks(const Int8Graph& graph);

/// Throws Error(usage) for a network that does not.
void require_masks(const Int8Graph& graph);

/// Returns the class of each pixel of an image of that size, one channel: that of the highest logit at its place, the
/// first of equal ones; kUnlabelled where the input does not show the image. logits: [height, width, classes] of the
/// output.
Image decode_mask(const Int8Graph& graph, const float* logits, const ImageSize& image);

/// Returns what is left when of two detections of one class that overlap more than `iou_threshold` the one of the lower
/// score is left out (non-maximum suppression), the highest score first; of equal scores the first stays.
std::vector<Detection> suppress(std::vector<Detection> detections, double iou_threshold);

/// Returns the image, in colour, with a frame around each box and the class and score above it; a class has one colour.
/// class_names: by class; without one it is called by its number. Lines and letters grow with the image.
Image draw_boxes(const Image& image, std::span<const Detection> detections, std::span<const std::string> class_names);

/// Returns the image, in colour, half under the colours of its pixels' classes, whose names stand in its upper left
/// corner in the order of their shares. mask: the class of each pixel; what is kUnlabelled stays as it is.
Image draw_classes(const Image& image, const Image& mask, std::span<const std::string> class_names);

/// The letters on such an image: 5 x 7 pixels each.
inline constexpr int kLetterWidth = 5, kLetterHeight = 7;

/// Returns the rows of a letter from the top; bit 4 is the pixel on the left. There are capitals, which small letters
/// are shown as, digits and some signs; other characters are a frame.
std::array<uint8_t, kLetterHeight> letter(char character);

}  // namespace octet
