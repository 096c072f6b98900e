// SPDX-License-Identifier: Apache-2.0
// SimOTA and YOLOX's losses against a plain form in double, one image, box and cell at a time.
#include "trainers/loop/objective.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "src/base/random.h"
#include "src/data/labels.h"

namespace octet {
namespace {

constexpr int kBoxImages = 3, kBoxClasses = 3, kPlaces = 6;

struct Level {
  int stride, height, width;
};
constexpr std::array<Level, 2> kLevels = {{{8, 6, 8}, {16, 3, 4}}};

/// Nine outputs would be those of YOLOX; the order of a network's outputs is another one here.
BoxDecoder decoder() {
  BoxDecoder d;
  for (const Level& level : kLevels) {
    const int first = static_cast<int>(d.outputs.size());
    for (const int channels : {kBoxClasses, 4, 1}) d.outputs.push_back({{channels, level.height, level.width}, {}});
    d.head.levels.push_back({level.stride, first + 1, first + 2, first});
  }
  return d;
}

struct PlainBox {
  double x = 0, y = 0, w = 0, h = 0;
  int label = -1;
};

/// What one cell gives, as the network's output vector holds it.
struct PlainCell {
  std::array<double, 4> raw{};
  double objectness = 0;
  std::array<double, kBoxClasses> classes{};
  double x = 0, y = 0, stride = 0;

  PlainBox box() const {
    return {(raw[0] + x) * stride, (raw[1] + y) * stride, std::exp(raw[2]) * stride, std::exp(raw[3]) * stride};
  }
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double iou_of(const PlainBox& a, const PlainBox& b) {
  const auto shared = [](double ca, double sa, double cb, double sb) {
    return std::max(0.0, std::min(ca + sa / 2, cb + sb / 2) - std::max(ca - sa / 2, cb - sb / 2));
  };
  const double both = shared(a.x, a.w, b.x, b.w) * shared(a.y, a.h, b.y, b.h);
  return both / (a.w * a.h + b.w * b.h - both);
}

/// The cells of one image, level by level, read from the flat output.
std::vector<PlainCell> plain_cells(const std::vector<double>& flat) {
  std::vector<PlainCell> cells;
  size_t first = 0;
  for (const Level& level : kLevels) {
    const size_t pixels = static_cast<size_t>(level.height) * level.width;
    for (size_t p = 0; p < pixels; ++p) {
      PlainCell cell{.x = static_cast<double>(p % level.width),
                     .y = static_cast<double>(p / level.width),
                     .stride = static_cast<double>(level.stride)};
      for (int c = 0; c < kBoxClasses; ++c) cell.classes[c] = flat[first + c * pixels + p];
      for (int v = 0; v < 4; ++v) cell.raw[v] = flat[first + (kBoxClasses + v) * pixels + p];
      cell.objectness = flat[first + (kBoxClasses + 4) * pixels + p];
      cells.push_back(cell);
    }
    first += (kBoxClasses + 5) * pixels;
  }
  return cells;
}

struct PlainMatch {
  std::vector<int> label;   ///< by cell; -1: background
  std::vector<double> iou;  ///< by cell
};

PlainMatch plain_assign(const std::vector<PlainCell>& cells, const std::vector<PlainBox>& boxes) {
  PlainMatch match{std::vector<int>(cells.size(), -1), std::vector<double>(cells.size())};
  const auto near = [](const PlainCell& c, const PlainBox& b) {
    return std::abs((c.x + 0.5) * c.stride - b.x) < 1.5 * c.stride &&
           std::abs((c.y + 0.5) * c.stride - b.y) < 1.5 * c.stride;
  };
  std::vector<size_t> candidates;
  for (size_t a = 0; a < cells.size(); ++a)
    if (std::any_of(boxes.begin(), boxes.end(), [&](const PlainBox& b) { return near(cells[a], b); }))
      candidates.push_back(a);
  std::vector<std::vector<double>> cost(boxes.size(), std::vector<double>(cells.size()));
  std::vector<std::vector<int>> takers(cells.size());
  for (size_t g = 0; g < boxes.size(); ++g) {
    std::vector<double> ious;
    for (const size_t a : candidates) {
      const double iou = iou_of(cells[a].box(), boxes[g]);
      ious.push_back(iou);
      for (int c = 0; c < kBoxClasses; ++c) {
        const double q = std::sqrt(sigmoid(cells[a].classes[c]) * sigmoid(cells[a].objectness));
        cost[g][a] -= std::log(c == boxes[g].label ? q : 1 - q);
      }
      cost[g][a] -= 3 * std::log(iou + 1e-8);
      if (!near(cells[a], boxes[g])) cost[g][a] += 1e6;
    }
    std::sort(ious.rbegin(), ious.rend());
    double sum = 0;
    for (size_t i = 0; i < std::min<size_t>(10, ious.size()); ++i) sum += ious[i];
    std::vector<size_t> order = candidates;
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return cost[g][a] < cost[g][b]; });
    const size_t count = std::min<size_t>(order.size(), std::max(1, static_cast<int>(sum)));
    for (size_t i = 0; i < count; ++i) takers[order[i]].push_back(static_cast<int>(g));
  }
  for (size_t a = 0; a < cells.size(); ++a) {
    if (takers[a].empty()) continue;
    int label = takers[a].front();
    if (takers[a].size() > 1)
      for (int g = 0; g < static_cast<int>(boxes.size()); ++g)
        if (cost[g][a] < cost[label][a]) label = g;
    match.label[a] = label;
    match.iou[a] = iou_of(cells[a].box(), boxes[label]);
  }
  return match;
}

double bce(double logit, double target) {
  return -target * std::log(sigmoid(logit)) - (1 - target) * std::log(1 - sigmoid(logit));
}

struct PlainLosses {
  double boxes = 0, objectness = 0, classes = 0, iou = 0, l1 = 0;
  double sum() const { return boxes + objectness + classes; }
};

/// The losses of a batch for an assignment that is given, as gradients have it.
PlainLosses plain_losses(const std::vector<std::vector<PlainCell>>& cells,
                         const std::vector<std::vector<PlainBox>>& boxes, const std::vector<PlainMatch>& matches) {
  PlainLosses all;
  double count = 0;
  for (size_t n = 0; n < cells.size(); ++n)
    for (size_t a = 0; a < cells[n].size(); ++a) {
      const int label = matches[n].label[a];
      all.objectness += bce(cells[n][a].objectness, label >= 0 ? 1 : 0);
      if (label < 0) continue;
      ++count;
      const double iou = iou_of(cells[n][a].box(), boxes[n][label]);
      all.boxes += 5 * (1 - iou * iou);
      all.iou += iou;
      const PlainBox& wanted = boxes[n][label];
      const PlainCell& cell = cells[n][a];
      const double numbers[] = {wanted.x / cell.stride - cell.x, wanted.y / cell.stride - cell.y,
                                std::log(wanted.w / cell.stride + 1e-8), std::log(wanted.h / cell.stride + 1e-8)};
      for (int v = 0; v < 4; ++v) all.l1 += std::abs(cell.raw[v] - numbers[v]);
      for (int c = 0; c < kBoxClasses; ++c)
        all.classes += bce(cells[n][a].classes[c], c == boxes[n][label].label ? matches[n].iou[a] : 0);
    }
  count = std::max(count, 1.0);
  return {all.boxes / count, all.objectness / count, all.classes / count, all.iou / count, all.l1 / count};
}

/// A random head and random labels: an image without boxes, boxes that share cells, boxes of all sizes.
struct Sample {
  explicit Sample(uint64_t seed) {
    Random random({seed});
    const int64_t elements = 8 * (6 * 8 + 3 * 4);
    outputs = at::empty({kBoxImages, elements}, at::kFloat);
    labels = at::zeros({kBoxImages, kPlaces, kBoxValues}, at::kLong);
    labels.select(2, 0).fill_(kNoLabel);
    flat.resize(kBoxImages, std::vector<double>(static_cast<size_t>(elements)));
    for (int n = 0; n < kBoxImages; ++n)
      for (int64_t i = 0; i < elements; ++i) {
        const float value = static_cast<float>(random.uniform(-1.5, 1.5));
        outputs[n][i] = value;
        flat[n][static_cast<size_t>(i)] = value;
      }
    boxes.resize(kBoxImages);
    for (int n = 1; n < kBoxImages; ++n)
      for (int g = 0; g < kPlaces - n; ++g) {
        const double w = random.uniform(2, 40), h = random.uniform(2, 40);
        const double left = random.uniform(0, 64 - w), top = random.uniform(0, 48 - h);
        const int c = static_cast<int>(random.below(kBoxClasses));
        int64_t values[] = {c, std::llround(left * kBoxUnits), std::llround(top * kBoxUnits),
                            std::llround(w * kBoxUnits), std::llround(h * kBoxUnits)};
        const auto length = [&](int v) { return static_cast<double>(values[v]) / kBoxUnits; };
        boxes[n].push_back({length(1) + length(3) / 2, length(2) + length(4) / 2, length(3), length(4), c});
        const int place = (g + 2 * n) % kPlaces;  // the empty places are not the last ones
        for (int v = 0; v < kBoxValues; ++v) labels[n][place][v] = values[v];
        places.push_back({n, g, place});
      }
  }

  std::vector<std::vector<PlainCell>> cells() const {
    std::vector<std::vector<PlainCell>> all;
    for (const std::vector<double>& one : flat) all.push_back(plain_cells(one));
    return all;
  }
  std::vector<PlainMatch> matches() const {
    std::vector<PlainMatch> all;
    const auto of = cells();
    for (int n = 0; n < kBoxImages; ++n) all.push_back(plain_assign(of[n], boxes[n]));
    return all;
  }
  int place_of(int image, int box) const {
    for (const auto& [n, g, place] : places)
      if (n == image && g == box) return place;
    return -1;
  }

  at::Tensor outputs, labels;
  std::vector<std::vector<double>> flat;
  std::vector<std::vector<PlainBox>> boxes;
  std::vector<std::array<int, 3>> places;
};

TEST(BoxObjective, AssignsAsThePlainForm) {
  const BoxObjective objective(decoder(), at::kCPU);
  long positives = 0, contested = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Sample sample(seed);
    const Assignment got = assign_boxes(objective.cells(sample.outputs), box_targets(sample.labels));
    const std::vector<PlainMatch> wanted = sample.matches();
    for (int n = 0; n < kBoxImages; ++n)
      for (size_t a = 0; a < wanted[n].label.size(); ++a) {
        const auto cell = static_cast<int64_t>(a);
        const int label = wanted[n].label[a];
        ASSERT_EQ(got.positive[n][cell].item<bool>(), label >= 0) << seed << " image " << n << " cell " << a;
        if (label < 0) {
          ASSERT_EQ(got.iou[n][cell].item<float>(), 0) << seed;
          continue;
        }
        ++positives;
        contested += a >= 48;
        ASSERT_EQ(got.label[n][cell].item<int64_t>(), sample.place_of(n, label)) << seed << " cell " << a;
        ASSERT_NEAR(got.iou[n][cell].item<float>(), wanted[n].iou[a], 1e-5) << seed;
      }
  }
  EXPECT_GT(positives, 300);
  EXPECT_GT(contested, 30);  // the coarse level has its share
}

/// 50,000 places for boxes, nearly all empty, are compared in three parts.
TEST(BoxObjective, AssignsManyBoxesInParts) {
  const BoxObjective objective(decoder(), at::kCPU);
  const Sample sample(4);
  const BoxCells cells = objective.cells(sample.outputs);
  const Assignment wanted = assign_boxes(cells, box_targets(sample.labels));
  const at::Tensor empty = at::zeros({kBoxImages, 50'000, kBoxValues}, at::kLong);
  empty.select(2, 0).fill_(kNoLabel);
  const Assignment got = assign_boxes(cells, box_targets(at::cat({sample.labels, empty}, 1)));
  EXPECT_TRUE(at::equal(got.positive, wanted.positive));
  EXPECT_TRUE(at::equal(got.iou, wanted.iou));
  EXPECT_TRUE(at::equal(got.label * got.positive, wanted.label * wanted.positive));
  EXPECT_GT(wanted.positive.sum().item<int64_t>(), 5);
}

/// A single image has more pairs of cells and boxes than are compared at a time. Its boxes lie at both ends.
TEST(BoxObjective, AssignsTheBoxesOfOneImageInParts) {
  const BoxObjective objective(decoder(), at::kCPU);
  long positives = 0;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const Sample sample(seed);
    const BoxCells cells = objective.cells(sample.outputs);
    const Assignment wanted = assign_boxes(cells, box_targets(sample.labels));
    constexpr int64_t kEmpty = 50'000, kHalf = kPlaces / 2;
    const at::Tensor empty = at::zeros({kBoxImages, kEmpty, kBoxValues}, at::kLong);
    empty.select(2, 0).fill_(kNoLabel);
    const Assignment got = assign_boxes(
        cells,
        box_targets(at::cat({sample.labels.narrow(1, 0, kHalf), empty, sample.labels.narrow(1, kHalf, kHalf)}, 1)));
    EXPECT_TRUE(at::equal(got.positive, wanted.positive)) << seed;
    EXPECT_TRUE(at::equal(got.iou, wanted.iou)) << seed;
    const at::Tensor label = at::where(got.label.lt(kHalf), got.label, got.label - kEmpty);
    EXPECT_TRUE(at::equal(label * got.positive, wanted.label * wanted.positive)) << seed;
    positives += wanted.positive.sum().item<int64_t>();
  }
  EXPECT_GT(positives, 20);
}

/// An objective of an input of 24x32 judges what a network gives for 48x64 as the objective of 48x64 does.
TEST(BoxObjective, JudgesInputsOfOtherSizes) {
  BoxDecoder small = decoder(), large = decoder();
  large.transform.height = 48, large.transform.width = 64;
  small.transform.height = 24, small.transform.width = 32;
  for (BoxDecoder::Output& output : small.outputs) output.shape.h /= 2, output.shape.w /= 2;
  small.outputs[3].shape.h = small.outputs[4].shape.h = small.outputs[5].shape.h = 1;
  large.outputs[3].shape.h = large.outputs[4].shape.h = large.outputs[5].shape.h = 2;
  const BoxObjective of_large(large, at::kCPU), of_small(small, at::kCPU);
  const Sample sample(2), taught(3);
  const int64_t elements = 8 * (6 * 8 + 2 * 4);
  const at::Tensor outputs = sample.outputs.narrow(1, 0, elements), teacher = taught.outputs.narrow(1, 0, elements);
  const Objective::Whole whole{.input = {48, 64}};
  const auto wanted = of_large.judge(outputs, sample.labels, 0, whole);
  const auto got = of_small.judge(outputs, sample.labels, 0, whole);
  EXPECT_TRUE(at::equal(got.loss, wanted.loss));
  EXPECT_TRUE(at::equal(got.right, wanted.right));
  EXPECT_TRUE(at::equal(of_small.distill(outputs, teacher, 4, whole), of_large.distill(outputs, teacher, 4, whole)));
  EXPECT_TRUE(at::equal(of_large.judge(outputs, sample.labels, 0, {}).loss, wanted.loss));
}

TEST(BoxObjective, LosesAsThePlainForm) {
  const BoxObjective objective(decoder(), at::kCPU);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Sample sample(seed);
    const PlainLosses wanted = plain_losses(sample.cells(), sample.boxes, sample.matches());
    const auto got = objective.losses(objective.cells(sample.outputs), box_targets(sample.labels));
    EXPECT_NEAR(got.boxes.item<float>(), wanted.boxes, 2e-5 * wanted.boxes) << seed;
    EXPECT_NEAR(got.objectness.item<float>(), wanted.objectness, 2e-5 * wanted.objectness) << seed;
    EXPECT_NEAR(got.classes.item<float>(), wanted.classes, 2e-5 * wanted.classes) << seed;
    const Objective::Judged judged = objective.judge(sample.outputs, sample.labels, 0, {});
    EXPECT_NEAR(judged.loss.item<float>(), wanted.sum(), 2e-5 * wanted.sum()) << seed;
    EXPECT_NEAR(judged.right.item<double>(), kBoxImages * wanted.iou, 1e-4) << seed;
    EXPECT_FALSE(got.l1.defined());
    const Objective::Judged last = objective.judge(sample.outputs, sample.labels, 0, {.box_l1 = true});
    EXPECT_NEAR(last.loss.item<float>(), wanted.sum() + wanted.l1, 2e-5 * (wanted.sum() + wanted.l1)) << seed;
    EXPECT_GT(wanted.l1, 0.5);
  }
}

TEST(BoxObjective, HasTheGradientOfFiniteDifferences) {
  const BoxObjective objective(decoder(), at::kCPU);
  Sample sample(7);
  const at::Tensor outputs = sample.outputs.clone().requires_grad_();
  objective.judge(outputs, sample.labels, 0, {.box_l1 = true}).loss.backward();
  const std::vector<PlainMatch> fixed = sample.matches();
  constexpr double kStep = 1e-5;
  long seen = 0;
  for (int n = 0; n < kBoxImages; ++n)
    for (size_t i = 0; i < sample.flat[n].size(); ++i) {
      const double at = sample.flat[n][i];
      const auto loss = [&](double value) {
        sample.flat[n][i] = value;
        const PlainLosses losses = plain_losses(sample.cells(), sample.boxes, fixed);
        return losses.sum() + losses.l1;
      };
      const double slope = (loss(at + kStep) - loss(at - kStep)) / (2 * kStep);
      sample.flat[n][i] = at;
      ASSERT_NEAR(outputs.grad()[n][static_cast<int64_t>(i)].item<float>(), slope, 1e-5 + 1e-4 * std::abs(slope))
          << n << " " << i;
      seen += slope != 0;
    }
  EXPECT_GT(seen, 200);
}

/// Boxes that no cell can find, and none at all, leave finite losses and gradients.
TEST(BoxObjective, HasFiniteGradientsWithoutPositives) {
  const BoxObjective objective(decoder(), at::kCPU);
  Sample sample(3);
  sample.labels.select(2, 0).fill_(kNoLabel);
  const at::Tensor outputs = (sample.outputs * 60).requires_grad_();  // sizes that overflow, probabilities of 0 and 1
  const Objective::Judged judged = objective.judge(outputs, sample.labels, 0, {.box_l1 = true});
  judged.loss.backward();
  EXPECT_TRUE(judged.loss.isfinite().item<bool>());
  EXPECT_TRUE(outputs.grad().isfinite().all().item<bool>());
  EXPECT_EQ(judged.right.item<double>(), 0);
}

TEST(BoxObjective, LearnsNothingOfATeacherThatItEquals) {
  const BoxObjective objective(decoder(), at::kCPU);
  const Sample sample(5), other(6);
  const at::Tensor outputs = sample.outputs.clone().requires_grad_();
  const at::Tensor same = objective.distill(outputs, sample.outputs, 4, {});
  same.backward();
  EXPECT_NEAR(same.item<float>(), 0, 1e-4);
  // 1 - IoU^2 has an edge where boxes are equal: only what the classes and the objectness learn is 0 there.
  const BoxCells slope = objective.cells(outputs.grad());
  EXPECT_LT(slope.objectness.abs().max().item<float>(), 1e-6);
  EXPECT_LT(slope.classes.abs().max().item<float>(), 1e-6);

  const at::Tensor away = other.outputs.clone().requires_grad_();
  const at::Tensor before = objective.distill(away, sample.outputs, 4, {});
  before.backward();
  const at::Tensor after =
      objective.distill(away.detach() - 0.02 * away.grad() / away.grad().norm(), sample.outputs, 4, {});
  EXPECT_GT(before.item<float>(), 0.5);
  EXPECT_LT(after.item<float>(), before.item<float>());
}

}  // namespace
}  // namespace octet
