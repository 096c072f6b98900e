// SPDX-License-Identifier: Apache-2.0
// Metrics of a network's logits: top-1 and top-5, cross-entropy, and intersection over union of segmentations. Ties are
// broken by index (the lower class wins), so that equal logits give equal metrics on every machine. Metrics of boxes:
// COCO's average precision (AP) and average recall (AR), https://cocodataset.org/#detection-eval, with the numbers of
// pycocotools' COCOeval.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/data/dataset.h"

namespace octet {

/// Returns the index of the largest logit, the lowest of equal ones. NaN is never the largest; all NaN gives 0.
int arg_max(std::span<const float> logits);

/// Returns the position of `label` in the order of falling logits: 0 counts for top-1, below 5 for top-5. Equal logits
/// rank by index; a NaN at `label` ranks last.
int rank_of(std::span<const float> logits, int label);

/// Returns -log softmax(logits)[label], by log-sum-exp in double with the maximum taken out.
double cross_entropy(std::span<const float> logits, int label);

/// A network's answer for one image or one pixel, judged by its label. An answer with label kNoLabel does not count.
struct Answer {
  int64_t label = 0;
  int prediction = 0, rank = 0;  ///< arg_max(), rank_of()
  double cross_entropy = 0;
};

/// Judges an answer. Throws Error(data) for a label that is not one of the logits' classes.
Answer judge(std::span<const float> logits, int64_t label);

/// Sums over answers. The shares are exact ratios of counts.
class Metrics {
 public:
  explicit Metrics(int classes) : classes_(classes), confusion_(static_cast<size_t>(classes) * classes) {}
  void add(const Answer& answer);
  long labels() const { return sums_.labels; }  ///< number of answers that count
  double top1() const { return share(sums_.top1); }
  double top5() const { return share(sums_.top5); }
  /// Returns the mean cross-entropy.
  double loss() const { return sums_.labels ? sums_.loss / static_cast<double>(sums_.labels) : 0; }
  const std::vector<long>& confusion() const { return confusion_; }  ///< [classes, classes], row: label

  struct Sums {
    long labels = 0, top1 = 0, top5 = 0;
    double loss = 0;
  };
  const Sums& sums() const { return sums_; }
  /// Adds sums over other answers, and their confusion apart: counts may be added in any order.
  void add(const Sums& sums);
  void add_confusion(const std::vector<long>& confusion);

 private:
  double share(long count) const {
    return sums_.labels ? static_cast<double>(count) / static_cast<double>(sums_.labels) : 0;
  }
  int classes_;
  Sums sums_;
  std::vector<long> confusion_;
};

/// The pixels of one class in one image: how many have the class and were predicted as it (intersection), and how many
/// have it or were predicted as it (union).
struct Overlap {
  long both = 0, either = 0;
  bool operator==(const Overlap&) const = default;
};

/// Adds the pixels of one image to the overlaps of their label and of their prediction. labels, predictions: [pixels];
/// overlaps: [classes]. Pixels with kNoLabel do not count.
void add_overlaps(std::span<const int64_t> labels, std::span<const int> predictions, std::span<Overlap> overlaps);

/// Returns intersection over union of each class, with the pixels of all images summed first (Everingham et al., The
/// Pascal visual object classes challenge, 2010, 4.2.1); NaN for a class that no pixel has or was predicted as.
/// overlaps: [images, classes].
std::vector<double> class_ious(std::span<const Overlap> overlaps, size_t classes);

/// Returns the mean of those that are no NaN; 0 if there is none.
double mean_iou(std::span<const Overlap> overlaps, size_t classes);

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
  std::array<double, 3> recall_of_size{};  ///< AR with 100, of labels of the areas of ap_of_size
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
