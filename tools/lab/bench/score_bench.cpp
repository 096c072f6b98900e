// SPDX-License-Identifier: Apache-2.0
// score_bench [CLASSES]: times COCO's average precision of 5,000 images with 7 labels and 100 detections each, of which
// 40 lie near a label, and the comparison of two detectors on such images.
#include <fmt/core.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>

#include "src/base/random.h"
#include "src/eval/evaluate.h"
#include "src/eval/metrics.h"

namespace {

constexpr int kImages = 5000;

octet::ImageBoxes random_image(octet::Random& labels, octet::Random& found, int classes) {
  constexpr int kLabels = 7, kDetections = 100, kNear = 40;
  const auto anywhere = [](octet::Random& random) { return random.uniform(0, 440); };
  const auto any_class = [&](octet::Random& random) {
    return static_cast<int>(random.below(static_cast<uint32_t>(classes)));
  };
  octet::ImageBoxes image;
  for (int i = 0; i < kLabels; ++i) {
    const double side = labels.uniform(8, 200);
    const octet::Box box{anywhere(labels), anywhere(labels), side, side * labels.uniform(0.5, 2)};
    image.labels.push_back({box, any_class(labels), box.area(), labels.below(100) == 0});
  }
  for (int i = 0; i < kDetections; ++i) {
    const octet::BoxLabel& label = image.labels[found.below(kLabels)];
    octet::Detection detection{label.box, label.class_index, found.uniform()};
    if (i < kNear) {
      detection.box.x += found.uniform(-8, 8);
      detection.box.y += found.uniform(-8, 8);
    } else {
      detection.box.x = anywhere(found);
      detection.box.y = anywhere(found);
      detection.class_index = any_class(found);
    }
    image.detections.push_back(detection);
  }
  return image;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Returns what a detector found in images whose labels are the same for all seeds.
octet::Evaluation random_evaluation(int classes, uint64_t seed) {
  octet::Random labels({1}), found({2, seed});
  octet::Evaluation e;
  e.task.labels = octet::Labels::boxes;
  e.task.output = {classes, 1, 1};
  for (int i = 0; i < kImages; ++i) e.boxes.push_back(random_image(labels, found, classes));
  return e;
}

}  // namespace

int main(int count, char** arguments) {
  const int classes = count > 1 ? std::atoi(arguments[1]) : 80;
  const octet::Evaluation first = random_evaluation(classes, 1), second = random_evaluation(classes, 2);
  auto start = std::chrono::steady_clock::now();
  const double ap = octet::average_precision(first.boxes, classes).ap;
  fmt::print("{} images of {} classes: AP {:.4f} in {:.2f} s\n", kImages, classes, ap, seconds_since(start));
  start = std::chrono::steady_clock::now();
  const octet::Paired p = octet::paired_boxes(first, second);
  fmt::print("two detectors on them: {:.4f} points ({:.4f} to {:.4f}) in {:.2f} s\n", p.points, p.low, p.high,
             seconds_since(start));
}
