// SPDX-License-Identifier: Apache-2.0
// Which test images a report of a network of segmentation shows, and what of them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/recipe/run.h"
#include "trainers/run/measure.h"

namespace octet {
namespace {

constexpr size_t kImages = 9;

/// A network of which `right` of an image's 256 pixels are those of its labels' class 0, and the others are class 1.
Evaluation network_with(const std::vector<long>& right) {
  Evaluation network;
  network.task = {Labels::pixels, {2, 16, 16}};
  network.images = static_cast<long>(right.size());
  for (const long pixels : right) {
    for (long i = 0; i < 256; ++i) network.predictions.push_back(i < pixels ? 0 : 1);
    network.overlaps.push_back({pixels, 256});
    network.overlaps.push_back({0, 256 - pixels});
  }
  return network;
}

class WorstMasks : public ::testing::Test {
 protected:
  const RunData data_ = open_run_data(
      parse_recipe("data: {format: synthetic, labels: pixels, channels: 1, image_size: 16, "
                   "synthetic_size: 40, synthetic_classes: 2,\n"
                   "       validation_fraction: 0.25, mean: [0.5], std: [0.5]}\nmodel: {name: unet2, width: 0.125}\n",
                   "worst.yaml"));

  std::string name_of(size_t image) const {
    const EvaluationSet set = data_.test_images();
    return set.dataset->describe(set.indices[image]);
  }
};

TEST_F(WorstMasks, AreThoseThatLoseMostIou) {
  const Evaluation before = network_with({200, 200, 200, 200, 10, 200, 200, 200, 200});
  Evaluation int8 = network_with({200, 190, 200, 100, 10, 210, 150, 200, 199});
  for (const size_t pixel : {3u, 4u, 5u}) int8.predictions[7 * 256 + pixel] = 1;  // as far, and other pixels
  const std::vector<ReportMasks> shown = worst_masks(data_, before, int8);
  ASSERT_EQ(shown.size(), 6u);
  const std::vector<size_t> expected = {3, 6, 1, 8, 7, 0};  // image 4 is bad in both
  for (size_t i = 0; i < shown.size(); ++i) EXPECT_EQ(shown[i].name, name_of(expected[i])) << i;
  EXPECT_DOUBLE_EQ(shown[0].before_iou, (200.0 / 256 + 0) / 2);
  EXPECT_DOUBLE_EQ(shown[0].int8_iou, (100.0 / 256 + 0) / 2);
}

TEST_F(WorstMasks, HaveTheirImageLabelsAndBothMasks) {
  const EvaluationSet set = data_.test_images();
  std::vector<long> all(kImages, 256), less = all;
  less[5] = 40;
  const std::vector<ReportMasks> shown = worst_masks(data_, network_with(all), network_with(less));
  ASSERT_EQ(shown.size(), 6u);
  const ReportMasks& worst = shown.front();
  EXPECT_EQ(worst.name, name_of(5));
  EXPECT_EQ(worst.image.pixels, set.dataset->read(set.indices[5]).pixels);
  const std::vector<uint8_t> mask = set.dataset->mask(set.indices[5]).pixels;
  EXPECT_EQ(worst.truth, std::vector<int>(mask.begin(), mask.end()));
  EXPECT_EQ(worst.before, std::vector<int>(256, 0));
  EXPECT_EQ(worst.int8[39], 0);
  EXPECT_EQ(worst.int8[40], 1);
}

/// Engine reference may have seen the first images alone.
TEST_F(WorstMasks, AreAmongTheImagesThatBothHaveSeen) {
  const std::vector<ReportMasks> shown =
      worst_masks(data_, network_with(std::vector<long>(8, 200)), network_with({1, 2}));
  ASSERT_EQ(shown.size(), 2u);
  EXPECT_EQ(shown[0].name, name_of(0));
}

}  // namespace
}  // namespace octet
