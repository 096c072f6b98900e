// SPDX-License-Identifier: Apache-2.0
// Evaluation of detectors: outputs become boxes, boxes the AP of the set, and two detectors are compared.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include "src/base/random.h"
#include "src/eval/evaluate.h"
#include "src/eval/metrics.h"
#include "tests/error_of.h"
#include "tests/eval/shared.h"

namespace octet {
namespace {

constexpr int kSide = 32, kCells = 16, kStride = 8;

/// Image i has the value i everywhere, and a box of two cells by two around the middle of cell i % 16.
class Cells : public Dataset {
 public:
  Cells() {
    const auto side = [](int cell) {  // cut off at the image's borders
      const double low = std::max(0.0, kStride * (cell - 0.5)), high = std::min(1.0 * kSide, kStride * (cell + 1.5));
      return std::pair{low, high - low};
    };
    for (int i = 0; i < 40; ++i) {
      const auto [x, width] = side(i % 4);
      const auto [y, height] = side(i / 4 % 4);
      boxes_.push_back({{{x, y, width, height}, i % 2, width * height, false}});
    }
  }
  size_t size() const override { return boxes_.size(); }
  int channels() const override { return 1; }
  Labels labels() const override { return Labels::boxes; }
  int label(size_t) const override { return 0; }
  Image read(size_t i) const override {
    return {kSide, kSide, 1, std::vector<uint8_t>(kSide * kSide, static_cast<uint8_t>(i))};
  }
  const std::vector<BoxLabel>& boxes(size_t i) const override { return boxes_[i]; }
  const std::vector<std::string>& class_names() const override { return names_; }
  std::optional<ImageHeader> header(size_t) const override { return ImageHeader{kSide, kSide, 1, 8}; }
  std::string describe(size_t i) const override { return "cells[" + std::to_string(i) + "]"; }

 private:
  std::vector<std::vector<BoxLabel>> boxes_;
  std::vector<std::string> names_{"even", "odd"};
};

/// Finds the boxes of images, but of each of which `blind` divides the number (from 1) one in another place.
class Finds : public Program {
 public:
  explicit Finds(int blind, float poison = 0) : blind_(blind), poison_(poison) {}
  void run(const uint8_t* images, int batch, const OutputMemory& outputs, const NodeTap&) override {
    ASSERT_EQ(outputs.size(), 3u);
    for (int n = 0; n < batch; ++n) {
      const int image = images[n * kSide * kSide];
      const bool right = (image + 1) % blind_ != 0;
      const int cell = right ? image % kCells : (image + 5) % kCells;
      for (int c = 0; c < kCells; ++c) {
        float* classes = static_cast<float*>(outputs[0]) + (n * kCells + c) * 2;
        float* box = static_cast<float*>(outputs[1]) + (n * kCells + c) * 4;
        const bool here = c == cell;
        classes[0] = image % 2 == 0 ? 5 : -12, classes[1] = image % 2 == 0 ? -12 : 5;
        box[0] = box[1] = 0.5;
        box[2] = box[3] = std::log(2.0f);
        static_cast<float*>(outputs[2])[n * kCells + c] = here ? 4 : -20;
      }
      if (image == 3) static_cast<float*>(outputs[1])[n * kCells * 4] += poison_;
    }
  }
  std::vector<LayerInfo> layers() const override { return {}; }
  size_t arena_bytes() const override { return 0; }

 private:
  int blind_;
  float poison_;
};

class DetectionEvaluation : public ::testing::Test {
 protected:
  DetectionEvaluation() {
    set_.name = "test";
    set_.dataset = &cells_;
    set_.indices.resize(cells_.size());
    std::iota(set_.indices.begin(), set_.indices.end(), size_t{0});
    set_.transform.channels = 1;
    set_.transform.height = set_.transform.width = kSide;
    set_.transform.fit = Fit::letterbox_corner;
    BoxDecoder decoder{{}, {}, set_.transform};
    for (const int channels : {2, 4, 1}) decoder.outputs.push_back({{channels, 4, 4}, {}});
    decoder.head.levels = {{kStride, 1, 2, 0}};
    set_.detector = std::make_shared<BoxDecoder>(decoder);
  }
  Evaluation with(Program&& program) {
    return evaluate("cpu", program, set_, {.classes = 2, .batch_size = 7, .latency_images = 2});
  }
  Cells cells_;
  EvaluationSet set_;
};

/// Four boxes; the best finding is right, the second wrong, the third right, the others are not found.
TEST(PrecisionByRecall, FallsWhereFindingsAreWrong) {
  const Box box{10, 10, 20, 20}, beside{60, 60, 20, 20}, near{16.3, 10, 20, 20};  // IoU 0.52
  std::vector<ImageBoxes> images(4, {{{box, 0, 400, false}}, {}});
  images[1].detections = {{box, 0, 0.9}};
  images[2].detections = {{beside, 0, 0.8}, {near, 0, 0.7}};
  const AveragePrecision::OfClass found = average_precision(images, 2).of_class[0];
  for (size_t r = 0; r <= 100; ++r) EXPECT_NEAR(found.precision50[r], r <= 25 ? 1 : r <= 50 ? 2.0 / 3 : 0, 1e-9) << r;
  EXPECT_NEAR(found.ap50, (26 + 25 * 2.0 / 3) / 101, 1e-9);
}

TEST_F(DetectionEvaluation, BoxesAreScoredInTheirImages) {
  const Evaluation all = with(Finds(1000));
  EXPECT_EQ(all.images, 40);
  EXPECT_EQ(all.ap, 1);
  EXPECT_EQ(all.score(), all.ap);
  EXPECT_EQ(all.second(), all.ap50);
  EXPECT_EQ(all.loss, 1 - all.ap);
  EXPECT_EQ(all.latency_runs, 2);
  EXPECT_EQ(accuracy_key(all), "cpu_ap");
  ASSERT_EQ(all.boxes.size(), 40u);
  ASSERT_EQ(all.boxes[5].detections.size(), 1u);
  EXPECT_EQ(all.boxes[5].detections[0].box, (Box{4, 4, 16, 16}));
  const Evaluation some = with(Finds(4));
  EXPECT_GT(some.ap, 0.5);  // of one class all, of the other half, with as many that are wrong
  EXPECT_LT(some.ap, 0.75);
  EXPECT_EQ(differing_predictions(all, some), 10);
  EXPECT_EQ(differing_predictions(all, with(Finds(1000))), 0);
}

TEST_F(DetectionEvaluation, AnOutputThatIsNoNumberShowsInTheLoss) {
  EXPECT_TRUE(std::isnan(with(Finds(1000, std::numeric_limits<float>::infinity())).loss));
  EXPECT_EQ(differing_predictions(with(Finds(1000)), with(Finds(1000, 1e-3f))), 0);  // a cell without a box
}

TEST_F(DetectionEvaluation, TwoAreComparedByTheJackknife) {
  const Evaluation good = with(Finds(1000)), bad = with(Finds(3)), nearly = with(Finds(39));
  const Paired same = paired(good, good);
  EXPECT_EQ(same.points, 0);
  EXPECT_EQ(same.p_value, 1);
  EXPECT_FALSE(same.told_apart());
  const Paired worse = paired(good, bad);
  EXPECT_DOUBLE_EQ(worse.points, 100 * (good.ap - bad.ap));
  EXPECT_LT(worse.low, worse.points);
  EXPECT_GT(worse.high, worse.points);
  EXPECT_TRUE(worse.told_apart());
  EXPECT_DOUBLE_EQ(paired(bad, good).low, -worse.high);
  EXPECT_FALSE(paired(good, nearly).told_apart());  // one image of 40
  EXPECT_EQ(worse.images, 40);
}

/// The interval is Student's with a degree of freedom less than there are groups; one image alone says nothing.
TEST_F(DetectionEvaluation, FewImagesTellLittleApart) {
  Evaluation good = with(Finds(1000)), bad = with(Finds(3));
  good.boxes.resize(4);
  bad.boxes.resize(4);
  const auto ap = [](std::vector<ImageBoxes> boxes, size_t without) {
    if (without < boxes.size()) boxes.erase(boxes.begin() + static_cast<std::ptrdiff_t>(without));
    return 100 * average_precision(boxes, 2).ap;
  };
  double mean = 0, squares = 0;
  for (size_t i = 0; i < 4; ++i) mean += (ap(good.boxes, i) - ap(bad.boxes, i)) / 4;
  for (size_t i = 0; i < 4; ++i) squares += std::pow(ap(good.boxes, i) - ap(bad.boxes, i) - mean, 2);
  const Paired four = paired(good, bad);
  EXPECT_NEAR(four.points, ap(good.boxes, 4) - ap(bad.boxes, 4), 1e-9);
  EXPECT_GT(squares, 0);
  EXPECT_NEAR(four.high - four.points, 3.182446 * std::sqrt(3.0 / 4 * squares), 1e-4);
  good.boxes.resize(1);
  bad.boxes.resize(1);
  EXPECT_FALSE(paired(good, bad).told_apart());
  EXPECT_TRUE(std::isinf(paired(good, bad).high));
}

/// Returns images of five classes, one in six without labels and one in six without detections, with crowds, equal
/// scores and, of a class in an image, more detections than count. Class 4 has labels in the first image alone.
std::vector<ImageBoxes> random_boxes(Random& random, size_t count) {
  constexpr int kMany = 130;
  std::vector<ImageBoxes> images(count);
  for (size_t i = 0; i < count; ++i) {
    const auto labels = random.below(6), detections = i == 2 ? kMany : 4 * random.below(6);
    for (uint32_t l = 0; l < labels; ++l) {
      const Box box{random.uniform(0, 60), random.uniform(0, 60), random.uniform(8, 120), random.uniform(8, 120)};
      const bool crowd = random.below(5) == 0;
      images[i].labels.push_back({box, static_cast<int>(random.below(i == 0 ? 5 : 4)), box.area(), crowd});
    }
    for (uint32_t d = 0; d < detections; ++d) {
      Detection found{{5, 5, 30, 30}, static_cast<int>(random.below(i == 2 ? 1 : 5)), random.below(8) / 8.0};
      if (labels > 0 && random.below(4) > 0) {
        const BoxLabel& label = images[i].labels[random.below(labels)];
        found.box = label.box, found.class_index = label.class_index;
        found.box.x += random.uniform(-5, 5);
      }
      images[i].detections.push_back(found);
    }
  }
  return images;
}

/// The precision without a group is bit for bit that of a set without its images.
TEST(AveragePrecision, WithoutGroupsIsThatOfTheOtherImages) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Random random({seed, 30});
    const std::vector<ImageBoxes> images = random_boxes(random, 30);
    for (const size_t groups : {1u, 2u, 7u, 20u, 30u}) {
      const std::vector<double> without = mean_average_precision_without(images, 5, groups);
      ASSERT_EQ(without.size(), groups);
      for (size_t group = 0; group < groups; ++group) {
        std::vector<ImageBoxes> kept;
        for (size_t i = 0; i < images.size(); ++i)
          if (i % groups != group) kept.push_back(images[i]);
        const double plain = mean_average_precision(kept, 5);
        EXPECT_EQ(std::bit_cast<uint64_t>(without[group]), std::bit_cast<uint64_t>(plain))
            << "seed " << seed << ", without group " << group << " of " << groups << ": " << without[group] << ", not "
            << plain;
      }
    }
  }
}

/// Two, three and nine processes: 6 batches of 7 images, the last of 5, of which each has its own.
TEST_F(DetectionEvaluation, SeveralProcessesScoreAsOneDoes) {
  std::reverse(set_.indices.begin() + 3, set_.indices.end());
  const float infinite = std::numeric_limits<float>::infinity();
  for (const float poison : {0.0f, infinite}) {
    const auto work = [&](const EvaluationSet& set) {
      Finds program(4, poison);
      return evaluate("cpu", program, set, {.classes = 2, .batch_size = 7, .latency_images = 0});
    };
    const Evaluation alone = work(set_);
    for (const int size : {2, 3, 9})
      for (const Evaluation& e : testing::each_process<Evaluation>(size, work, set_)) {
        testing::expect_equal(e, alone);
        EXPECT_EQ(e.images, 40);
        EXPECT_EQ(std::isnan(e.loss), poison != 0);
        for (size_t i = 0; i < 40; ++i) {
          ASSERT_EQ(e.boxes[i].labels.size(), 1u);
          EXPECT_EQ(e.boxes[i].labels[0].box, alone.boxes[i].labels[0].box) << i;
          ASSERT_EQ(e.boxes[i].detections.size(), alone.boxes[i].detections.size());
        }
      }
  }
}

TEST_F(DetectionEvaluation, ImagesWithoutAnyBoxHaveNoScore) {
  for (size_t i = 0; i < 40; ++i) const_cast<std::vector<BoxLabel>&>(cells_.boxes(i)).clear();
  EXPECT_EQ(error_of([&] { with(Finds(2)); }), "evaluation of cpu: none of the 40 images has a box");
}

}  // namespace
}  // namespace octet
