// SPDX-License-Identifier: Apache-2.0
// Metrics of a network's logits: top-1 and top-5, cross-entropy, and intersection over union of segmentations. Ties are
// broken by index (the lower class wins), so that equal logits give equal metrics on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

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

/// Returns the mean over classes of intersection over union, with the pixels of all images summed first (Everingham et
/// al., The Pascal visual object classes challenge, 2010, 4.2.1). Classes that no pixel has or was predicted as are
/// left out; without any class the result is 0. overlaps: [images, classes].
double mean_iou(std::span<const Overlap> overlaps, size_t classes);

}  // namespace octet
