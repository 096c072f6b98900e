// SPDX-License-Identifier: Apache-2.0
#include "src/eval/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "src/base/error.h"
#include "src/data/labels.h"

namespace octet {

int arg_max(std::span<const float> logits) {
  float best = -std::numeric_limits<float>::infinity();
  int at = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > best || (at < 0 && logits[i] == best)) {
      best = logits[i];
      at = static_cast<int>(i);
    }
  }
  return std::max(at, 0);
}

int rank_of(std::span<const float> logits, int label) {
  const float own = logits[label];
  if (std::isnan(own)) return static_cast<int>(logits.size());
  int rank = 0;
  for (int i = 0; i < static_cast<int>(logits.size()); ++i) rank += logits[i] > own || (logits[i] == own && i < label);
  return rank;
}

double cross_entropy(std::span<const float> logits, int label) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const float x : logits) largest = std::max(largest, static_cast<double>(x));
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - largest);
  // The difference of logits is exact also where they are large; adding the logarithm to one of them would not be.
  return std::log(sum) + (largest - static_cast<double>(logits[label]));
}

Answer judge(std::span<const float> logits, int64_t label) {
  const int predicted = arg_max(logits);
  if (label == kNoLabel) return {.label = label, .prediction = predicted};
  const auto classes = static_cast<int64_t>(logits.size());
  if (label < 0 || label >= classes) {
    throw data_error(
        fmt::format("evaluation: an image has label {} but the model has classes 0..{}; the data set does "
                    "not belong to this model",
                    label, classes - 1));
  }
  const int known = static_cast<int>(label);
  return {label, predicted, rank_of(logits, known), cross_entropy(logits, known)};
}

void Metrics::add(const Answer& answer) {
  if (answer.label == kNoLabel) return;
  ++sums_.labels;
  sums_.top1 += answer.prediction == answer.label;
  sums_.top5 += answer.rank < 5;
  sums_.loss += answer.cross_entropy;
  ++confusion_[static_cast<size_t>(answer.label) * classes_ + answer.prediction];
}

void Metrics::add(const Sums& sums) {
  sums_.labels += sums.labels;
  sums_.top1 += sums.top1;
  sums_.top5 += sums.top5;
  sums_.loss += sums.loss;
}

void Metrics::add_confusion(const std::vector<long>& confusion) {
  std::transform(confusion.begin(), confusion.end(), confusion_.begin(), confusion_.begin(), std::plus<>());
}

void add_overlaps(std::span<const int64_t> labels, std::span<const int> predictions, std::span<Overlap> overlaps) {
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] == kNoLabel) continue;
    Overlap& own = overlaps[static_cast<size_t>(labels[i])];
    ++own.either;
    if (predictions[i] == labels[i]) {
      ++own.both;
    } else {
      ++overlaps[static_cast<size_t>(predictions[i])].either;
    }
  }
}

std::vector<double> class_ious(std::span<const Overlap> overlaps, size_t classes) {
  std::vector<Overlap> sums(classes);
  for (size_t i = 0; i < overlaps.size() / classes * classes; ++i) {
    sums[i % classes].both += overlaps[i].both;
    sums[i % classes].either += overlaps[i].either;
  }
  std::vector<double> ious;
  for (const Overlap& o : sums) ious.push_back(static_cast<double>(o.both) / static_cast<double>(o.either));
  return ious;
}

double mean_iou(std::span<const Overlap> overlaps, size_t classes) {
  double sum = 0;
  int seen = 0;
  for (const double iou : class_ious(overlaps, classes)) {
    if (std::isnan(iou)) continue;
    sum += iou;
    ++seen;
  }
  return seen == 0 ? 0 : sum / seen;
}

}  // namespace octet
