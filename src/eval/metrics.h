// Classification metrics of logits. Ties are broken by index (the lower class wins), so that equal logits give equal
// metrics on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace octet {

/// Index of the largest logit, the lowest of equal ones. NaN is never largest; all NaN gives 0.
int arg_max(std::span<const float> logits);

/// Position of `label` in the order of falling logits: 0 is top-1, below 5 is top-5. Equal logits rank by index; a NaN
/// at `label` ranks last.
int rank_of(std::span<const float> logits, int label);

/// -log softmax(logits)[label], by log-sum-exp in double with the maximum taken out.
double cross_entropy(std::span<const float> logits, int label);

/// What counts of an answer; label kNoLabel: nothing.
struct Answer {
  int64_t label = 0;
  int prediction = 0, rank = 0;  ///< arg_max(), rank_of()
  double cross_entropy = 0;
};

/// Throws Error(data) for a label that is none of the logits' classes.
Answer judge(std::span<const float> logits, int64_t label);

/// Sums over answers, one a picture or one a pixel; the shares are exact ratios of counts.
class Metrics {
 public:
  explicit Metrics(int classes) : classes_(classes), confusion_(static_cast<size_t>(classes) * classes) {}
  void add(const Answer& answer);
  long labels() const { return labels_; }
  double top1() const { return share(top1_); }
  double top5() const { return share(top5_); }
  double loss() const { return labels_ ? loss_ / static_cast<double>(labels_) : 0; }
  const std::vector<long>& confusion() const { return confusion_; }  ///< [classes, classes], row: label

 private:
  double share(long count) const { return labels_ ? static_cast<double>(count) / static_cast<double>(labels_) : 0; }
  int classes_;
  long labels_ = 0, top1_ = 0, top5_ = 0;
  double loss_ = 0;
  std::vector<long> confusion_;
};

}  // namespace octet
