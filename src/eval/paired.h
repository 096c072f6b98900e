// Two networks on the same pictures: how far are they apart, and could it be chance? Both read each picture, so what
// tells them apart are the pictures that one of them has right and the other wrong (McNemar 1947).
#pragma once

#include "src/eval/evaluate.h"

namespace octet {

struct Paired {
  long images = 0;
  long only_first = 0, only_second = 0;  ///< pictures that only the one has right, or has more pixels of right
  double points = 0;                     ///< 100 * (score of the first - score of the second)
  /// 95 % interval of `points`: d +- 1.96 sqrt(b + c - (b - c)^2 / n) / n with b = only_first, c = only_second,
  /// d = (b - c) / n. Wald's interval of a difference of paired proportions: Agresti, Categorical Data Analysis, 2nd
  /// edition (2002), 10.1.1. Worked (there): n 1600, b 150, c 86: 4.0 points, 2.1 to 5.9.
  double low = 0, high = 0;
  /// Two-sided mid-p value of McNemar's test, good for few discordant pictures too: Fagerland, Lydersen and Laake, The
  /// McNemar test for binary matched-pairs data, BMC Medical Research Methodology 13:91 (2013). Worked (there): b 1,
  /// c 7: 0.039.
  double p_value = 1;

  /// Neither interval nor test takes the difference for chance. Few discordant pictures make the interval too narrow.
  bool told_apart() const { return (low > 0 || high < 0) && p_value < 0.05; }
};

/// `only_first`, `only_second`: how many of `images` only the one has right.
Paired paired(long images, long only_first, long only_second);

/// The two-sided mid-p value of that test: are so many of the one and so many of the other a fair coin's?
double sign_test(long only_first, long only_second);

/// Over the pictures that both have seen: the first so many, where one saw fewer. Of pixels' answers: paired_pixels()
/// of src/eval/segmentation.h.
Paired paired(const Evaluation& first, const Evaluation& second);

}  // namespace octet
