// SPDX-License-Identifier: Apache-2.0
// How well a detector finds boxes: COCO's average precision (AP) and average recall (AR), with the numbers of
// pycocotools' COCOeval for boxes. https://cocodataset.org/#detection-eval
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "src/data/boxes.h"

namespace octet {

/// One image: what is there, and what was found.
struct ImageBoxes {
  std::vector<BoxLabel> labels;
  std::vector<Detection> detections;
};

/// Shares in 0..1. NaN where no label says anything: no class has a label of that size that is no crowd.
struct AveragePrecision {
  /// The mean over classes with labels, over ten thresholds of intersection over union (0.50, 0.55 .. 0.95) and over
  /// recalls (0, 0.01 .. 1) of the precision; at most 100 detections of a class in an image count.
  double ap = 0;
  double ap50 = 0, ap75 = 0;               ///< of one threshold
  std::array<double, 3> ap_of_size{};      ///< of labels of an area up to 32^2, 32^2 to 96^2, and more
  std::array<double, 3> recall_of_best{};  ///< AR with at most 1, 10 and 100 detections of a class in an image
  std::array<double, 3> recall_of_size{};  ///< AR with 100, by size as above
  struct OfClass {
    double ap = 0, ap50 = 0, ap75 = 0;
    long labels = 0;  ///< that are no crowds
    /// The precision at recalls 0, 0.01 .. 1, with boxes that overlap by half, the best at that recall or a higher one.
    std::array<double, 101> precision50{};
  };
  std::vector<OfClass> of_class;
};

/// Scores detections. Classes of labels and detections are 0 .. classes - 1, scores are numbers. Of equal scores the
/// first counts first: images in their order, detections in theirs.
AveragePrecision average_precision(std::span<const ImageBoxes> images, int classes);

/// Returns average_precision(images, classes).ap alone, in a sixth of the time.
double mean_average_precision(std::span<const ImageBoxes> images, int classes);

/// Returns mean_average_precision() without the images g, g + groups, g + 2 groups .. for each g < groups, but matches
/// detections to labels only once: a match depends on its image alone.
std::vector<double> mean_average_precision_without(std::span<const ImageBoxes> images, int classes, size_t groups);

}  // namespace octet
