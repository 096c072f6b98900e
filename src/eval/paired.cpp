// SPDX-License-Identifier: Apache-2.0
#include "src/eval/evaluate.h"

#include <limits>

#include "src/base/numbers.h"
#include "src/base/random.h"

namespace octet {
namespace {

constexpr double kDeviations = 1.959964;  // 97.5 % point of the normal distribution
constexpr int kDraws = 2000;              // of the bootstrap
constexpr size_t kGroups = 20;            // of the jackknife
/// 97.5 % points of Student's t with 1 to kGroups - 1 degrees of freedom.
constexpr std::array<double, kGroups - 1> kStudent = {
    12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139,
    2.200985,  2.178813, 2.160369, 2.144787, 2.131450, 2.119905, 2.109816, 2.100922, 2.093024};

/// Returns the logarithm of the probability of k heads in n throws of a fair coin.
double log_binomial(long n, long k) {
  const auto log_factorial = [](long x) { return std::lgamma(static_cast<double>(x) + 1); };
  return log_factorial(n) - log_factorial(k) - log_factorial(n - k) - static_cast<double>(n) * std::log(2.0);
}

/// Returns the overlaps of one image, [classes].
std::span<const Overlap> overlaps_of(const Evaluation& e, size_t image) {
  const auto classes = static_cast<size_t>(e.task.classes());
  return std::span(e.overlaps).subspan(image * classes, classes);
}

long right_pixels(std::span<const Overlap> image) {
  long right = 0;
  for (const Overlap& o : image) right += o.both;
  return right;
}

/// Returns 100 * (mean IoU of the first - that of the second) over those images, each as often as it is listed.
double difference(const Evaluation& first, const Evaluation& second, std::span<const size_t> images) {
  const auto score = [&](const Evaluation& e) {
    std::vector<Overlap> drawn;
    drawn.reserve(images.size() * static_cast<size_t>(e.task.classes()));
    for (const size_t image : images) {
      const std::span<const Overlap> overlaps = overlaps_of(e, image);
      drawn.insert(drawn.end(), overlaps.begin(), overlaps.end());
    }
    return mean_iou(drawn, static_cast<size_t>(e.task.classes()));
  };
  return 100 * (score(first) - score(second));
}

}  // namespace

double sign_test(long only_first, long only_second) {
  const long discordant = only_first + only_second, fewer = std::min(only_first, only_second);
  double tail = 0;
  for (long k = 0; k < fewer; ++k) tail += std::exp(log_binomial(discordant, k));
  return std::min(1.0, 2 * tail + std::exp(log_binomial(discordant, fewer)));
}

Paired paired(long images, long only_first, long only_second) {
  Paired p{.images = images, .only_first = only_first, .only_second = only_second};
  if (images == 0) return p;
  const auto n = static_cast<double>(images), difference = static_cast<double>(only_first - only_second);
  const double deviation = std::sqrt(static_cast<double>(only_first + only_second) - difference * difference / n);
  p.points = 100 * difference / n;
  p.low = 100 * (difference - kDeviations * deviation) / n;
  p.high = 100 * (difference + kDeviations * deviation) / n;
  p.p_value = sign_test(only_first, only_second);
  return p;
}

Paired paired(const Evaluation& first, const Evaluation& second) {
  if (first.task.pixels()) return paired_pixels(first, second);
  if (first.task.labels == Labels::boxes) return paired_boxes(first, second);
  const size_t images = std::min(first.right.size(), second.right.size());
  long only_first = 0, only_second = 0;
  for (size_t i = 0; i < images; ++i) {
    only_first += first.right[i] && !second.right[i];
    only_second += second.right[i] && !first.right[i];
  }
  return paired(static_cast<long>(images), only_first, only_second);
}

Paired paired_boxes(const Evaluation& first, const Evaluation& second) {
  const size_t images = std::min(first.boxes.size(), second.boxes.size()), groups = std::min(images, kGroups);
  Paired p{.images = static_cast<long>(images)};
  if (images == 0) return p;
  const auto a = std::span(first.boxes).first(images), b = std::span(second.boxes).first(images);
  const int classes = first.task.classes();
  p.points = 100 * (mean_average_precision(a, classes) - mean_average_precision(b, classes));
  std::vector<double> without = mean_average_precision_without(a, classes, groups);
  const std::vector<double> of_second = mean_average_precision_without(b, classes, groups);
  for (size_t group = 0; group < groups; ++group) without[group] = 100 * (without[group] - of_second[group]);
  const auto n = static_cast<double>(groups);
  double mean = 0, squares = 0;
  for (const double value : without) mean += value / n;
  for (const double value : without) squares += (value - mean) * (value - mean);
  const double deviation = std::sqrt((n - 1) / n * squares);
  if (groups < 2 || !std::isfinite(deviation)) {  // all labels are in one group: nothing is known
    p.low = -std::numeric_limits<double>::infinity(), p.high = std::numeric_limits<double>::infinity();
    return p;
  }
  p.low = p.points - kStudent[groups - 2] * deviation;
  p.high = p.points + kStudent[groups - 2] * deviation;
  p.p_value = deviation > 0 ? std::erfc(std::abs(p.points) / deviation / std::sqrt(2.0)) : p.points == 0 ? 1 : 0;
  return p;
}

Paired paired_pixels(const Evaluation& first, const Evaluation& second) {
  const auto images = static_cast<size_t>(std::min(first.images, second.images));
  long only_first = 0, only_second = 0;
  for (size_t i = 0; i < images; ++i) {
    const long a = right_pixels(overlaps_of(first, i)), b = right_pixels(overlaps_of(second, i));
    only_first += a > b;
    only_second += b > a;
  }
  Paired p{.images = static_cast<long>(images), .only_first = only_first, .only_second = only_second};
  if (images == 0) return p;
  std::vector<size_t> drawn(images);
  for (size_t i = 0; i < images; ++i) drawn[i] = i;
  p.points = difference(first, second, drawn);
  p.p_value = sign_test(only_first, only_second);
  Random random({images});
  std::vector<double> draws;
  for (int draw = 0; draw < kDraws; ++draw) {
    for (size_t& image : drawn) image = random.below(static_cast<uint32_t>(images));
    draws.push_back(difference(first, second, drawn));
  }
  p.low = percentile(draws, 0.025);
  p.high = percentile(std::move(draws), 0.975);
  return p;
}

}  // namespace octet
