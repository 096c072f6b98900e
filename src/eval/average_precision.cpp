// SPDX-License-Identifier: Apache-2.0
#include "src/eval/metrics.h"

#include <algorithm>
#include <bitset>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

namespace octet {
namespace {

constexpr int kThresholds = 10, kRecalls = 101;
constexpr std::array<size_t, 3> kMostDetections = {1, 10, 100};
constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

using Thresholds = std::bitset<kThresholds>;

/// A range of areas, both ends within it.
struct AreaRange {
  double low, high;
  bool holds(double area) const { return area >= low && area <= high; }
};
constexpr std::array<AreaRange, 4> kAreas = {{{0, 1e10}, {0, 32. * 32}, {32. * 32, 96. * 96}, {96. * 96, 1e10}}};

/// Returns threshold `t` of intersection over union, rounded as numpy.linspace(.5, .95, 10) does.
double threshold(int t) { return t + 1 == kThresholds ? 0.95 : 0.5 + t * ((0.95 - 0.5) / (kThresholds - 1)); }

/// Returns recall `r`, as numpy.linspace(0, 1, 101) does.
double recall_point(int r) { return r + 1 == kRecalls ? 1 : r * (1.0 / (kRecalls - 1)); }

/// A class in one image: its labels, and its detections, the highest score first.
struct ClassImage {
  size_t image = 0;  ///< its place in the set
  std::vector<BoxLabel> labels;
  std::vector<Detection> detections;
};

/// What became of one detection at each threshold, for one range of areas.
struct Outcome {
  double score = 0;
  size_t image = 0;    ///< its place in the set
  size_t rank = 0;     ///< among the detections of its class in its image
  Thresholds matched;  ///< to a label
  Thresholds ignored;  ///< counts neither as right nor as wrong
};

/// Returns a share of each label (columns, in the order `order`) and detection (rows): of the union, or, of a crowd, of
/// the detection.
std::vector<double> overlaps(const ClassImage& image, const std::vector<size_t>& order) {
  std::vector<double> result;
  for (const Detection& detection : image.detections)
    for (const size_t l : order) {
      const BoxLabel& label = image.labels[l];
      const double shared = intersection(detection.box, label.box);
      const double whole = label.crowd ? detection.box.area() : detection.box.area() + label.box.area() - shared;
      result.push_back(shared > 0 ? shared / whole : 0);
    }
  return result;
}

/// Matches detections to labels, the highest score first, each to the label that it overlaps most; ignored labels
/// (crowds, other sizes) only where no other is left. Appends the outcomes; returns the labels that are not ignored.
long match(const ClassImage& image, const AreaRange& area, std::vector<Outcome>& outcomes) {
  const auto ignored = [&](size_t l) { return image.labels[l].crowd || !area.holds(image.labels[l].area); };
  std::vector<size_t> order(image.labels.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto first_ignored = std::stable_partition(order.begin(), order.end(), [&](size_t l) { return !ignored(l); });
  const auto counted = static_cast<size_t>(first_ignored - order.begin());
  const std::vector<double> overlap = overlaps(image, order);
  std::vector<Thresholds> taken(order.size());
  for (size_t d = 0; d < image.detections.size(); ++d) {
    Outcome outcome{image.detections[d].score, image.image, d, {}, {}};
    for (int t = 0; t < kThresholds; ++t) {
      double best = std::min(threshold(t), 1 - 1e-10);
      size_t found = order.size();
      for (size_t l = 0; l < order.size(); ++l) {
        if (taken[l][t] && !image.labels[order[l]].crowd) continue;
        if (found < counted && l >= counted) break;
        if (overlap[d * order.size() + l] < best) continue;
        best = overlap[d * order.size() + l];
        found = l;
      }
      const bool matched = found < order.size();
      outcome.matched[t] = matched;
      outcome.ignored[t] = matched ? found >= counted : !area.holds(image.detections[d].box.area());
      if (matched) taken[found].set(t);
    }
    outcomes.push_back(outcome);
  }
  return static_cast<long>(counted);
}

/// Precision and recall of a class at one threshold.
struct PrecisionRecall {
  double precision = 0;  ///< the mean over recall_point()
  double recall = 0;     ///< of all its detections
  std::array<double, kRecalls> curve{};
};

/// Returns the curve of outcomes in the order of their scores, of which those below `most` in their image count.
/// Precision only falls between right detections, so the best at a recall is that of one of them.
PrecisionRecall precision_recall(const std::vector<Outcome>& outcomes, int t, size_t most, long labels) {
  std::vector<double> precision;  // after each right detection
  double right = 0, wrong = 0;
  for (const Outcome& outcome : outcomes) {
    if (outcome.rank >= most || outcome.ignored[t]) continue;
    (outcome.matched[t] ? right : wrong) += 1;
    if (outcome.matched[t]) precision.push_back(right / (wrong + right + std::numeric_limits<double>::epsilon()));
  }
  for (size_t i = precision.size(); i > 1; --i) precision[i - 2] = std::max(precision[i - 2], precision[i - 1]);
  const auto recall = [&](size_t at) { return static_cast<double>(at + 1) / static_cast<double>(labels); };
  PrecisionRecall result;
  size_t at = 0;
  for (int r = 0; r < kRecalls; ++r) {
    while (at < precision.size() && recall(at) < recall_point(r)) ++at;
    if (at < precision.size()) result.curve[static_cast<size_t>(r)] = precision[at];
  }
  result.precision = std::accumulate(result.curve.begin(), result.curve.end(), 0.0) / kRecalls;
  result.recall = right / static_cast<double>(labels);
  return result;
}

/// The mean of what was added; NaN of nothing.
class Mean {
 public:
  void add(double value) { sum_ += value, ++count_; }
  double value() const { return count_ == 0 ? kNothing : sum_ / static_cast<double>(count_); }

 private:
  double sum_ = 0;
  long count_ = 0;
};

std::vector<std::vector<ClassImage>> by_class(std::span<const ImageBoxes> images, int classes) {
  std::vector<std::vector<ClassImage>> result(static_cast<size_t>(classes));
  std::vector<size_t> image_of(static_cast<size_t>(classes));  // 1 + the image that the class saw last
  for (size_t i = 0; i < images.size(); ++i) {
    const auto of = [&](int class_index) -> ClassImage& {
      const auto c = static_cast<size_t>(class_index);
      if (image_of[c] != i + 1) result[c].push_back({i, {}, {}});
      image_of[c] = i + 1;
      return result[c].back();
    };
    for (const BoxLabel& label : images[i].labels) of(label.class_index).labels.push_back(label);
    for (const Detection& detection : images[i].detections) of(detection.class_index).detections.push_back(detection);
  }
  const auto higher = [](const Detection& a, const Detection& b) { return a.score > b.score; };
  for (std::vector<ClassImage>& all : result)
    for (ClassImage& image : all) {
      std::stable_sort(image.detections.begin(), image.detections.end(), higher);
      image.detections.resize(std::min(image.detections.size(), kMostDetections.back()));
    }
  return result;
}

/// Returns the outcomes, the highest score first, of equal ones the first.
std::vector<Outcome> by_score(std::vector<Outcome> outcomes) {
  std::stable_sort(outcomes.begin(), outcomes.end(),
                   [](const Outcome& x, const Outcome& y) { return x.score > y.score; });
  return outcomes;
}

/// Returns the outcomes of a class, the highest score first, and how many labels count.
std::pair<std::vector<Outcome>, long> outcomes_of(const std::vector<ClassImage>& images, const AreaRange& area) {
  std::vector<Outcome> outcomes;
  long labels = 0;
  for (const ClassImage& image : images) labels += match(image, area, outcomes);
  return {by_score(std::move(outcomes)), labels};
}

/// Adds the precision of a class, the mean over thresholds, if it has labels.
void add_precision(const std::vector<Outcome>& outcomes, long labels, Mean& ap) {
  if (labels == 0) return;
  double sum = 0;
  for (int t = 0; t < kThresholds; ++t) sum += precision_recall(outcomes, t, kMostDetections.back(), labels).precision;
  ap.add(sum / kThresholds);
}

}  // namespace

double mean_average_precision(std::span<const ImageBoxes> images, int classes) {
  Mean ap;
  for (const std::vector<ClassImage>& all : by_class(images, classes)) {
    const auto [outcomes, labels] = outcomes_of(all, kAreas[0]);
    add_precision(outcomes, labels, ap);
  }
  return ap.value();
}

std::vector<double> mean_average_precision_without(std::span<const ImageBoxes> images, int classes, size_t groups) {
  std::vector<Mean> aps(groups);
  for (const std::vector<ClassImage>& all : by_class(images, classes)) {
    std::vector<Outcome> outcomes, kept;
    std::vector<long> labels_of(groups);
    for (const ClassImage& image : all) labels_of[image.image % groups] += match(image, kAreas[0], outcomes);
    outcomes = by_score(std::move(outcomes));
    const long labels = std::accumulate(labels_of.begin(), labels_of.end(), 0L);
    for (size_t group = 0; group < groups; ++group) {
      kept.clear();
      std::copy_if(outcomes.begin(), outcomes.end(), std::back_inserter(kept),
                   [&](const Outcome& outcome) { return outcome.image % groups != group; });
      add_precision(kept, labels - labels_of[group], aps[group]);
    }
  }
  std::vector<double> result;
  for (const Mean& ap : aps) result.push_back(ap.value());
  return result;
}

AveragePrecision average_precision(std::span<const ImageBoxes> images, int classes) {
  AveragePrecision result;
  Mean ap, ap50, ap75;
  std::array<Mean, 3> ap_of_size, recall_of_best, recall_of_size;
  for (const std::vector<ClassImage>& all : by_class(images, classes)) {
    AveragePrecision::OfClass of_class{kNothing, kNothing, kNothing, 0, {}};
    for (size_t a = 0; a < kAreas.size(); ++a) {
      const auto [outcomes, labels] = outcomes_of(all, kAreas[a]);
      if (labels == 0) continue;
      std::array<double, kThresholds> precision{};
      for (size_t m = a == 0 ? 0 : 2; m < kMostDetections.size(); ++m)
        for (int t = 0; t < kThresholds; ++t) {
          const PrecisionRecall of = precision_recall(outcomes, t, kMostDetections[m], labels);
          (a == 0 ? recall_of_best[m] : recall_of_size[a - 1]).add(of.recall);
          precision[static_cast<size_t>(t)] = of.precision;  // of the last m in the end
          if (a == 0 && t == 0) of_class.precision50 = of.curve;
        }
      const double mean = std::accumulate(precision.begin(), precision.end(), 0.0) / kThresholds;
      if (a > 0) {
        ap_of_size[a - 1].add(mean);
        continue;
      }
      of_class.ap = mean, of_class.ap50 = precision[0], of_class.ap75 = precision[5], of_class.labels = labels;
      ap.add(mean), ap50.add(precision[0]), ap75.add(precision[5]);
    }
    result.of_class.push_back(of_class);
  }
  result.ap = ap.value(), result.ap50 = ap50.value(), result.ap75 = ap75.value();
  for (size_t i = 0; i < 3; ++i) {
    result.ap_of_size[i] = ap_of_size[i].value();
    result.recall_of_best[i] = recall_of_best[i].value();
    result.recall_of_size[i] = recall_of_size[i].value();
  }
  return result;
}

}  // namespace octet
