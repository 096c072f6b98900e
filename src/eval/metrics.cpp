#include "src/eval/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/common/error.h"
#include "src/data/loader.h"

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
  // The difference first: it is exact where the logits are large, the sum with a logarithm would not be.
  return std::log(sum) + (largest - static_cast<double>(logits[label]));
}

int Metrics::add(std::span<const float> logits, int64_t label) {
  if (label == kNoLabel) return arg_max(logits);
  if (label < 0 || label >= classes_) {
    throw data_error(
        fmt::format("evaluation: an image has label {} but the model has classes 0..{}; the data set does "
                    "not belong to this model",
                    label, classes_ - 1));
  }
  const int predicted = arg_max(logits);
  ++labels_;
  top1_ += predicted == label;
  top5_ += rank_of(logits, static_cast<int>(label)) < 5;
  loss_ += cross_entropy(logits, static_cast<int>(label));
  ++confusion_[static_cast<size_t>(label) * classes_ + predicted];
  return predicted;
}

}  // namespace octet
