// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/measure.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "src/data/loader.h"
#include "src/detect/decode.h"
#include "src/eval/metrics.h"

namespace octet {
namespace {

/// Returns an image of at most kShownSide pixels a side with boxes drawn.
Image drawn(const Image& image, const std::vector<Detection>& found, const std::vector<std::string>& class_names) {
  constexpr double kShownSide = 360;
  const double scale = std::min(1.0, kShownSide / std::max(image.height, image.width));
  const auto side = [&](int pixels) { return std::max(1, static_cast<int>(pixels * scale)); };
  std::vector<Detection> shown;
  for (Detection d : found) {
    if (d.score < kShownScore) continue;
    d.box = {d.box.x * scale, d.box.y * scale, d.box.width * scale, d.box.height * scale};
    shown.push_back(d);
  }
  return draw_boxes(resize(view(image), side(image.height), side(image.width)), shown, class_names);
}

}  // namespace

std::vector<ReportBoxes> worst_boxes(const RunData& data, const Evaluation& before, const Evaluation& int8) {
  struct Judged {
    size_t image;
    double before, int8;
  };
  std::vector<Judged> all;
  for (size_t i = 0; i < std::min(before.boxes.size(), int8.boxes.size()); ++i) {
    const auto ap = [&](const Evaluation& of) { return mean_average_precision({&of.boxes[i], 1}, data.classes()); };
    if (const double own = ap(int8); !std::isnan(own)) all.push_back({i, ap(before), own});
  }
  constexpr double kFar = 0.05;  // below float
  const auto place = [](const Judged& of) {
    const double lost = of.before - of.int8;
    return lost > kFar ? -lost : of.int8;
  };
  std::stable_sort(all.begin(), all.end(), [&](const Judged& a, const Judged& b) { return place(a) < place(b); });
  all.resize(std::min<size_t>(all.size(), kShownImages));
  std::vector<ReportBoxes> shown;
  const EvaluationSet set = data.test_images();
  for (const Judged& of : all) {
    const size_t index = set.indices[of.image];
    const Image image = set.dataset->read(index);
    std::vector<Detection> labels;
    for (const BoxLabel& label : set.dataset->boxes(index)) labels.push_back({label.box, label.class_index, 1});
    const auto with = [&](const std::vector<Detection>& found) {
      return drawn(image, found, data.train_set->class_names());
    };
    shown.push_back({set.dataset->describe(index), with(labels), with(before.boxes[of.image].detections),
                     with(int8.boxes[of.image].detections), of.before, of.int8});
  }
  return shown;
}

namespace {

/// The classes that a network of segmentation gives the pixels of one image.
std::span<const int> classes_of(const Evaluation& evaluation, size_t image) {
  const size_t answers = evaluation.task.answers();
  return std::span(evaluation.predictions).subspan(image * answers, answers);
}

double own_iou(const Evaluation& evaluation, size_t image) {
  const auto classes = static_cast<size_t>(evaluation.task.classes());
  return mean_iou(std::span(evaluation.overlaps).subspan(image * classes, classes), classes);
}

long differing_pixels(const Evaluation& a, const Evaluation& b, size_t image) {
  const std::span<const int> of_a = classes_of(a, image), of_b = classes_of(b, image);
  long count = 0;
  for (size_t i = 0; i < of_a.size(); ++i) count += of_a[i] != of_b[i];
  return count;
}

}  // namespace

std::vector<ReportMasks> worst_masks(const RunData& data, const Evaluation& before, const Evaluation& int8) {
  struct Judged {
    size_t image;
    double before, int8;
    long differing;
    double lost() const { return before - int8; }
  };
  std::vector<Judged> all;
  for (size_t i = 0; i < static_cast<size_t>(std::min(before.images, int8.images)); ++i)
    all.push_back({i, own_iou(before, i), own_iou(int8, i), differing_pixels(before, int8, i)});
  std::stable_sort(all.begin(), all.end(), [](const Judged& a, const Judged& b) {
    return a.lost() != b.lost() ? a.lost() > b.lost() : a.differing > b.differing;
  });
  all.resize(std::min(all.size(), kShownImages));
  const EvaluationSet set = data.test_images();
  std::vector<size_t> indices;
  for (const Judged& of : all) indices.push_back(set.indices[of.image]);
  Loader loader(*set.dataset, indices, set.transform, {.batch_size = 1, .workers = 0});
  std::vector<ReportMasks> shown;
  Batch batch;
  for (const Judged& of : all) {
    loader.next(batch);
    const auto copy = [](std::span<const int> classes) { return std::vector<int>(classes.begin(), classes.end()); };
    ReportMasks masks{.name = set.dataset->describe(batch.indices.front()),
                      .image = {set.transform.height, set.transform.width, set.transform.channels, {}},
                      .truth = {batch.labels.begin(), batch.labels.end()},
                      .before = copy(classes_of(before, of.image)),
                      .int8 = copy(classes_of(int8, of.image)),
                      .before_iou = of.before,
                      .int8_iou = of.int8};
    masks.image.pixels.assign(batch.images.begin(), batch.images.end());
    shown.push_back(std::move(masks));
  }
  return shown;
}

}  // namespace octet
