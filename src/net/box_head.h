// SPDX-License-Identifier: Apache-2.0
// The head of a detector: which outputs of a network give boxes, and how. A part of the checkpoint, so that a program
// needs nothing else to turn outputs into boxes (src/detect/decode.h).
#pragma once

#include <array>
#include <vector>

#include "src/base/names.h"

namespace octet {

struct Graph;
struct Int8Graph;

enum class BoxHeadKind {
  yolox,     ///< of a cell (x, y): centre (x + b0, y + b1) and size (exp b2, exp b3), both times the stride; score
             ///< sigmoid(objectness) * sigmoid(class). Ge et al., YOLOX, arXiv 2107.08430
  yolo_dfl,  ///< of YOLOv8 and YOLO11: from the cell's centre (x + 0.5, y + 0.5) to left, top, right, bottom the mean
             ///< of 0..15 under the softmax of 16 channels, times the stride; score sigmoid(class). Li et al.,
             ///< Generalized Focal Loss, arXiv 2006.04388
};
inline constexpr std::array<Named<BoxHeadKind>, 2> kBoxHeadKinds = {
    {{BoxHeadKind::yolox, "yolox"}, {BoxHeadKind::yolo_dfl, "yolo_dfl"}}};

/// The bins of one side of a box, of a head yolo_dfl.
inline constexpr int kDistanceBins = 16;

struct BoxHead {
  BoxHeadKind kind = BoxHeadKind::yolox;
  /// One resolution. The numbers are places in Int8Graph::outputs; all three outputs have the same height and width.
  struct Level {
    int stride = 0;       ///< pixels of the input for each cell
    int boxes = 0;        ///< [4, h, w], or [4 * kDistanceBins, h, w] of yolo_dfl
    int objectness = -1;  ///< [1, h, w]; -1 for yolo_dfl
    int classes = 0;      ///< [classes, h, w]
    bool operator==(const Level&) const = default;
  };
  std::vector<Level> levels;
  float score_threshold = 0.25f;  ///< boxes of a lower score are left out, unless the caller wants others
  float iou_threshold = 0.45f;  ///< of two boxes of one class that overlap more, the one of the lower score is left out
  int max_boxes = 300;          ///< of an image, those of the highest scores
  bool operator==(const BoxHead&) const = default;
};

/// Returns the head of a network whose outputs are the last convolutions of a detector: the levels by the outputs'
/// sizes, which output is which by channels, by the layer that it reads and, where that leaves a choice, by its name.
/// Throws Error(usage) saying what does not fit; nothing is guessed.
BoxHead find_box_head(const Graph& graph, BoxHeadKind kind);

/// Throws Error(data) if graph.boxes does not fit the outputs.
void check_box_head(const Int8Graph& graph);

/// Returns the number of classes of graph.boxes, which must be there.
int box_classes(const Int8Graph& graph);

}  // namespace octet
