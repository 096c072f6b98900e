// SPDX-License-Identifier: Apache-2.0
// Two networks on the same images: how much do their scores differ, and could it be chance? Both see every image, so
// the evidence lies in the images that one of them has right and the other wrong (McNemar 1947).
#pragma once

#include "src/eval/evaluate.h"

namespace octet {

struct Paired {
  long images = 0;
  long only_first = 0, only_second = 0;  ///< images that only that network has right, or has more pixels of right
  double points = 0;                     ///< 100 * (score of the first - score of the second)
  /// 95 % interval of `points`: d +- 1.96 sqrt(b + c - (b - c)^2 / n) / n with b = only_first, c = only_second,
  /// d = (b - c) / n. Wald's interval of a difference of paired proportions: Agresti, Categorical Data Analysis, 2nd
  /// edition (2002), 10.1.1. Worked (there): n 1600, b 150, c 86: 4.0 points, 2.1 to 5.9.
  double low = 0, high = 0;
  /// Two-sided mid-p value of McNemar's test, good for few discordant images too: Fagerland, Lydersen and Laake, The
  /// McNemar test for binary matched-pairs data, BMC Medical Research Methodology 13:91 (2013). Worked (there): b 1,
  /// c 7: 0.039.
  double p_value = 1;

  /// Returns whether the difference is significant by both the interval and the test: with few discordant images the
  /// interval is too narrow.
  bool told_apart() const { return (low > 0 || high < 0) && p_value < 0.05; }
};

/// Compares two networks of which `only_first` and `only_second` of `images` images only the one has right.
Paired paired(long images, long only_first, long only_second);

/// Returns the two-sided mid-p value of the test whether only_first and only_second come from a fair coin.
double sign_test(long only_first, long only_second);

/// Compares two evaluations over the images that both have seen: the first ones, where one saw fewer. Segmentations are
/// compared by paired_pixels(), detectors by paired_boxes().
Paired paired(const Evaluation& first, const Evaluation& second);

/// Compares two segmentations. Pixels of an image are not independent trials, but images are: the interval is that of
/// the bootstrap over images (Efron and Tibshirani, An introduction to the bootstrap, 1993, 13.3: percentiles of 2,000
/// draws, the same in every run), and the p-value that of the sign test over the images of which one network has more
/// pixels right.
Paired paired_pixels(const Evaluation& first, const Evaluation& second);

/// Compares two detectors. AP is no mean over images: the interval is that of the jackknife that leaves out each of 20
/// groups of images in turn (Efron and Tibshirani, 11.5, with groups; Student's t of 19 degrees of freedom), and the
/// p-value that of the normal distribution with the same deviation. Of no image one can say which network has it right:
/// only_first and only_second are 0.
Paired paired_boxes(const Evaluation& first, const Evaluation& second);

}  // namespace octet
