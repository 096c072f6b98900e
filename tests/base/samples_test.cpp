// SPDX-License-Identifier: Apache-2.0
#include "src/base/numbers.h"

#include <gtest/gtest.h>

namespace octet {
namespace {

TEST(Samples, PercentilesOfKnownSamples) {
  std::vector<double> samples;
  for (int i = 100; i >= 1; --i) samples.push_back(i);
  EXPECT_EQ(percentile(samples, 0.99), 99);
  EXPECT_EQ(percentile(samples, 1.0), 100);
  EXPECT_EQ(percentile(samples, 0.001), 1);
  EXPECT_EQ(median(samples), 50.5);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(percentile({7}, 0.99), 7);
  EXPECT_EQ(percentile({}, 0.99), 0);
  EXPECT_EQ(median({}), 0);
}

}  // namespace
}  // namespace octet
