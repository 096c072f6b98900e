#include "src/eval/paired.h"

#include <algorithm>
#include <cmath>

#include "src/eval/segmentation.h"

namespace octet {
namespace {

constexpr double kDeviations = 1.959964;  // 97.5 % point of the normal distribution

/// Logarithm of the probability of k heads in n throws of a fair coin.
double log_binomial(long n, long k) {
  const auto log_factorial = [](long x) { return std::lgamma(static_cast<double>(x) + 1); };
  return log_factorial(n) - log_factorial(k) - log_factorial(n - k) - static_cast<double>(n) * std::log(2.0);
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
  const size_t images = std::min(first.right.size(), second.right.size());
  long only_first = 0, only_second = 0;
  for (size_t i = 0; i < images; ++i) {
    only_first += first.right[i] && !second.right[i];
    only_second += second.right[i] && !first.right[i];
  }
  return paired(static_cast<long>(images), only_first, only_second);
}

}  // namespace octet
