// SPDX-License-Identifier: Apache-2.0
// Worked numbers of segmentation: overlaps and mean IoU by hand, an evaluation of masks, two networks on the same ones.
#include "src/eval/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iterator>

#include "src/base/progress.h"
#include "src/data/loader.h"
#include "src/eval/compare.h"
#include "src/net/shapes.h"
#include "tests/error_of.h"
#include "tests/eval/fakes.h"
#include "tests/eval/shared.h"

namespace octet {
namespace {

using Overlaps = std::vector<Overlap>;

Overlaps overlaps(const std::vector<int64_t>& labels, const std::vector<int>& predictions, size_t classes) {
  Overlaps found(classes);
  add_overlaps(labels, predictions, found);
  return found;
}

TEST(Segmentation, OverlapsByHand) {
  //                       right 0  right 1  0 for 1  2 for 0  unlabelled
  EXPECT_EQ(overlaps({0, 1, 1, 0, kNoLabel}, {0, 1, 0, 2, 1}, 4), (Overlaps{{1, 3}, {1, 2}, {0, 1}, {0, 0}}));
}

/// A class that is neither there nor taken for anything says nothing; one that is only taken for something is wrong.
TEST(Segmentation, MeanIouLeavesOutWhatIsAbsent) {
  EXPECT_DOUBLE_EQ(mean_iou(Overlaps{{1, 3}, {1, 2}, {0, 1}, {0, 0}}, 4), (1.0 / 3 + 1.0 / 2 + 0) / 3);
  EXPECT_DOUBLE_EQ(mean_iou(Overlaps{{7, 7}, {0, 0}}, 2), 1);
  EXPECT_DOUBLE_EQ(mean_iou(Overlaps{{0, 0}, {0, 0}}, 2), 0);
}

/// Pixels are summed over all images first: (1 + 3) / (4 + 4), not the mean of 1/4 and 3/4 of other areas.
TEST(Segmentation, MeanIouSumsImagesFirst) {
  EXPECT_DOUBLE_EQ(mean_iou(Overlaps{{1, 4}, {0, 3}, {3, 4}, {9, 10}}, 2), ((1.0 + 3) / 8 + 9.0 / 13) / 2);
}

/// 2x2 images; image i has class (i + pixel) % 2 in its pixels, but the last pixel's nobody knows.
class Masked : public testing::FakeDataset {
 public:
  Masked(size_t size, int classes) : FakeDataset(size, classes) {}
  Labels labels() const override { return Labels::pixels; }
  Image mask(size_t index) const override {
    const auto i = static_cast<uint8_t>(index);
    return {2,
            2,
            1,
            {static_cast<uint8_t>(i % 2), static_cast<uint8_t>((i + 1) % 2), static_cast<uint8_t>(i % 2), kUnlabelled}};
  }
};

/// Takes every pixel for the class of the image's first; from image `wrong_from` on for the other one.
testing::FunctionProgram first_pixels_class(int wrong_from) {
  return testing::FunctionProgram([=](const uint8_t* images, int batch, float* logits) {
    for (int i = 0; i < batch; ++i) {
      const int image = images[4 * i] / 4, cls = (image + (image >= wrong_from ? 1 : 0)) % 2;
      for (int p = 0; p < 4; ++p) {
        logits[(4 * i + p) * 2 + cls] = 1;
        logits[(4 * i + p) * 2 + 1 - cls] = 0;
      }
    }
  });
}

class SegmentationEvaluate : public ::testing::Test {
 protected:
  void SetUp() override { set_verbosity(Verbosity::quiet); }
  const Masked dataset_{6, 2};
  Evaluation measured(int wrong_from) const {
    testing::FunctionProgram program = first_pixels_class(wrong_from);
    return evaluate("x", program, testing::all_of(dataset_), {.classes = 2, .batch_size = 4, .latency_images = 1});
  }
};

TEST_F(SegmentationEvaluate, JudgesWithAsManyThreadsAsItIsGiven) {
  constexpr int kBatch = 8192;  // of 4 answers: enough for several threads
  const Masked dataset(2 * kBatch, 2);
  const auto running = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}); };
  for (const int threads : {1, 3}) {
    EvaluationSet set = testing::all_of(dataset);
    set.workers = 0;
    set.threads = threads;
    const auto before = running();
    auto last = before;
    testing::FunctionProgram program([&](const uint8_t*, int, float*) { last = running(); });
    evaluate("x", program, set, {.classes = 2, .batch_size = kBatch, .latency_images = 0});
    EXPECT_EQ(last, before + threads - 1);
  }
}

TEST_F(SegmentationEvaluate, CountsPixelsAndClasses) {
  const Evaluation e = measured(99);
  EXPECT_EQ(e.images, 6);
  ASSERT_EQ(e.predictions.size(), 24u);
  EXPECT_DOUBLE_EQ(e.top1, 2.0 / 3);  // two of three labelled pixels
  EXPECT_EQ(e.confusion, (std::vector<long>{6, 3, 3, 6}));
  EXPECT_DOUBLE_EQ(e.mean_iou, 6.0 / 12);
  EXPECT_EQ(e.score(), e.mean_iou);
  EXPECT_EQ(e.latency_runs, 1);
  EXPECT_EQ(accuracy_key(e), "x_mean_iou");
  EXPECT_DOUBLE_EQ(measured(0).mean_iou, 3.0 / 15);
  EXPECT_EQ(differing_predictions(e, measured(4)), 8);
}

/// Seven batches of four images, the last of three; the logits of no two images are alike, so sums depend on order.
TEST_F(SegmentationEvaluate, SeveralProcessesCountAsOneDoes) {
  const Masked dataset(27, 2);
  const auto work = [](const EvaluationSet& set) {
    testing::FunctionProgram program([](const uint8_t* images, int batch, float* logits) {
      for (int i = 0; i < batch * 8; ++i) logits[i] = std::sin(static_cast<float>(images[i / 8 * 4] * 7 + i % 8));
    });
    return evaluate("x", program, set, {.classes = 2, .batch_size = 4, .latency_images = 0});
  };
  const EvaluationSet whole = testing::all_of(dataset);
  const Evaluation alone = work(whole);
  EXPECT_EQ(alone.predictions.size(), 27u * 4);
  EXPECT_LT(alone.top1, 1);
  for (const int size : {2, 3, 9})
    for (const Evaluation& e : testing::each_process<Evaluation>(size, work, whole)) {
      testing::expect_equal(e, alone);
      EXPECT_EQ(e.images, 27);
    }
}

TEST_F(SegmentationEvaluate, TwoNetworksAreHeldAgainstEachOtherByImage) {
  const Evaluation good = measured(99), worse = measured(4);
  const Paired p = paired(good, worse);
  EXPECT_EQ(p.images, 6);
  EXPECT_EQ(p.only_first, 2);  // images 4 and 5
  EXPECT_EQ(p.only_second, 0);
  // Of class 0 the worse one has 5 of 13 by images 0 to 3 (4 of 8) and 4, 5 (1 of 5); of class 1 likewise.
  EXPECT_NEAR(p.points, 100 * (6.0 / 12 - 5.0 / 13), 1e-12);
  EXPECT_DOUBLE_EQ(p.p_value, sign_test(2, 0));
  EXPECT_LE(p.low, p.points);
  EXPECT_GE(p.high, p.points);
  EXPECT_FALSE(p.told_apart());  // two images show nothing
  const Paired same = paired(good, good);
  EXPECT_EQ(same.low, 0);
  EXPECT_EQ(same.high, 0);
}

/// 40 images of which the second network has every other wrong in part: an interval that leaves out 0, and about as
/// wide as that of so many fair draws, 2 * 1.96 * 100 * (0.5 - 0.2) / 2 / sqrt(40) = 9.3 points.
TEST_F(SegmentationEvaluate, TheIntervalIsThatOfImages) {
  const auto network = [](bool half_wrong) {
    Evaluation e;
    e.task = {Labels::pixels, {2, 2, 2}};
    e.images = 40;
    for (int i = 0; i < 40; ++i) {
      const bool wrong = half_wrong && i % 2 == 0;
      e.overlaps.push_back(wrong ? Overlap{2, 10} : Overlap{5, 10});
      e.overlaps.push_back(wrong ? Overlap{2, 10} : Overlap{5, 10});
    }
    return e;
  };
  const Paired p = paired_pixels(network(false), network(true));
  EXPECT_NEAR(p.points, 15, 1e-9);
  EXPECT_NEAR(p.high - p.low, 9.3, 1.2);
  EXPECT_GT(p.low, 0);
  EXPECT_EQ(p.only_first, 20);
  EXPECT_TRUE(p.told_apart());
}

/// Networks and data that do not answer each other, each named with its cure.
TEST(TaskAnswers, WrongNetworksAreNamed) {
  const Masked dataset(2, 2);
  Transform t;
  t.height = t.width = 2;
  const Task pixels = task_of(dataset, t), image = task_of(testing::FakeDataset(2, 2), t);
  EXPECT_EQ(pixels.output, (Shape{2, 2, 2}));
  EXPECT_EQ(image.output, (Shape{2, 1, 1}));
  Int8Graph graph = testing::fake_graph(2);
  const auto refusal = [&](const Task& task) { return error_of([&] { require_answers(task, graph, "net"); }); };
  const std::string last = "net: gives '" + graph.nodes.back().name + "' float32 ";
  EXPECT_EQ(refusal(image), "");
  EXPECT_EQ(refusal({Labels::image, {1, 1, 1}}),
            last +
                "[2, 1, 1], the data set has 1 classes for each image, so it must give one output, [1, 1, 1]; "
                "images without labels are for octet quantize");
  EXPECT_EQ(refusal(pixels),
            last +
                "[2, 1, 1], the data set has 2 classes for each pixel, so it must give one output, [2, 2, 2]; "
                "data.labels: pixels wants a network of segmentation, such as model.name: unet");
  graph.nodes.back().shape = {2, 2, 2};
  EXPECT_EQ(refusal(pixels), "");
  EXPECT_EQ(refusal(image),
            last +
                "[2, 2, 2], the data set has 2 classes for each image, so it must give one output, [2, 1, 1]; "
                "a network that answers for every pixel learns from data.labels: pixels");
  graph.nodes.back().shape = {3, 2, 2};
  EXPECT_NE(refusal(pixels).find(last + "[3, 2, 2], the data set has 2 classes"), std::string::npos);
  graph.nodes.back().shape = {2, 2, 2};
  graph.nodes.back().float_output = false;
  EXPECT_NE(refusal(pixels).find("its output 'fc' gives codes, the answers"), std::string::npos);
  graph.nodes.back().shape = {2, 1, 1};
  graph.outputs.push_back(0);
  for (const Task& task : {pixels, image}) {
    EXPECT_NE(refusal(task).find("so it must give one output, " + to_string(task.output) + "; train one output"),
              std::string::npos)
        << refusal(task);
    EXPECT_EQ(refusal(task).find("data.labels"), std::string::npos) << refusal(task);
  }
}

}  // namespace
}  // namespace octet
