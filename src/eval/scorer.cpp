// SPDX-License-Identifier: Apache-2.0
#include "src/eval/scorer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/threads.h"
#include "src/detect/decode.h"
#include "src/eval/metrics.h"

namespace octet {
namespace {

std::span<const float> floats(const std::vector<uint8_t>& bytes, size_t count) {
  return {reinterpret_cast<const float*>(bytes.data()), count};
}

/// Classes of images or of their pixels.
class ClassScorer : public Scorer {
 public:
  ClassScorer(const Task& task, const EvaluationSet& set)
      : task_(task), shared_(set.sharing != nullptr), threads_(set.threads), metrics_(task.classes()) {}

  void add(const Batch& batch, const BatchOutputs& outputs) override {
    const auto classes = static_cast<size_t>(task_.classes());
    const std::span<const float> logits = floats(outputs.front(), batch.labels.size() * classes);
    const size_t first = predictions_.size();
    for (const Answer& answer : judged(logits, batch.labels, classes)) {
      take(answer);
      if (shared_) answers_.push_back(answer);
    }
    if (task_.pixels()) add_pictures(batch, first);
  }

  std::string so_far() const override {
    return fmt::format("{} {}", score_names(task_.labels).share, percent(metrics_.top1()));
  }

  void take_all(const Sharing& sharing, int batch_size) override {
    const std::vector<Answer> all = Sharing::in_order(sharing.all(answers_), batch_size);
    metrics_ = Metrics(task_.classes());
    predictions_.clear();
    right_.clear();
    for (const Answer& answer : all) take(answer);
  }

  void finish(Evaluation& result) override {
    result.images = static_cast<long>(predictions_.size() / task_.answers());
    result.top1 = metrics_.top1();
    result.top5 = metrics_.top5();
    result.loss = metrics_.loss();
    result.confusion = metrics_.confusion();
    if (task_.pixels()) result.mean_iou = mean_iou(overlaps_, static_cast<size_t>(task_.classes()));
    result.predictions = std::move(predictions_);
    result.right = std::move(right_);
    result.overlaps = std::move(overlaps_);
  }

 private:
  void take(const Answer& answer) {
    metrics_.add(answer);
    predictions_.push_back(answer.prediction);
    right_.push_back(answer.prediction == answer.label);
  }

  /// Judges the answers of a batch, many of them by several threads.
  std::vector<Answer> judged(std::span<const float> logits, std::span<const int64_t> labels, size_t classes) {
    constexpr size_t kPart = 1 << 14;
    std::vector<Answer> answers(labels.size());
    const size_t parts = (labels.size() + kPart - 1) / kPart;
    std::vector<std::exception_ptr> errors(parts);
    const auto judge_part = [&](int part, int) {
      const size_t begin = static_cast<size_t>(part) * kPart, end = std::min(begin + kPart, labels.size());
      try {
        for (size_t i = begin; i < end; ++i) answers[i] = judge(logits.subspan(i * classes, classes), labels[i]);
      } catch (...) {
        errors[static_cast<size_t>(part)] = std::current_exception();
      }
    };
    if (parts > 1 && !pool_) pool_.emplace(threads_);
    if (parts > 1) pool_->run(static_cast<int>(parts), judge_part);
    if (parts == 1) judge_part(0, 0);
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
    return answers;
  }

  /// Adds the overlaps of a batch whose predictions begin at `first`.
  void add_pictures(const Batch& batch, size_t first) {
    const size_t answers = task_.answers(), classes = static_cast<size_t>(task_.classes());
    for (size_t begin = 0; begin < batch.labels.size(); begin += answers) {
      overlaps_.resize(overlaps_.size() + classes);
      add_overlaps(std::span(batch.labels).subspan(begin, answers),
                   std::span(predictions_).subspan(first + begin, answers), std::span(overlaps_).last(classes));
    }
  }

  const Task task_;
  const bool shared_;
  const int threads_;
  Metrics metrics_;
  std::vector<int> predictions_;
  std::vector<bool> right_;
  std::vector<Overlap> overlaps_;
  std::vector<Answer> answers_;  // of this process, if several share the set
  std::optional<ThreadPool> pool_;
};

/// Boxes, by COCO's average precision.
class BoxScorer : public Scorer {
 public:
  BoxScorer(const Task& task, const EvaluationSet& set)
      : decoder_(*task.detector), options_(measuring_options(decoder_.head)), dataset_(*set.dataset) {}

  void add(const Batch& batch, const BatchOutputs& outputs) override {
    for (size_t o = 0; o < outputs.size(); ++o)
      for (const float value : floats(outputs[o], batch.size * decoder_.outputs[o].image_bytes() / sizeof(float)))
        finite_ = finite_ && std::isfinite(value);
    for (int i = 0; i < batch.size; ++i) {
      const size_t index = batch.indices[static_cast<size_t>(i)];
      images_.push_back({dataset_.boxes(index),
                         decode_boxes(decoder_, outputs, i, batch.sizes.at(static_cast<size_t>(i)), options_)});
      predictions_.push_back(number_of(images_.back().detections));
    }
  }

  std::string so_far() const override { return counted(static_cast<long>(images_.size()), "image"); }

  void take_all(const Sharing&, int) override {}

  void finish(Evaluation& result) override {
    const AveragePrecision ap = average_precision(images_, decoder_.classes());
    if (std::isnan(ap.ap))
      throw data_error(fmt::format("evaluation of {}: none of the {} images has a box", result.name, images_.size()));
    result.images = static_cast<long>(images_.size());
    result.ap = ap.ap;
    result.ap50 = ap.ap50;
    result.loss = finite_ ? 1 - ap.ap : std::numeric_limits<double>::quiet_NaN();
    result.predictions = std::move(predictions_);
    result.boxes = std::move(images_);
  }

 private:
  /// Returns a number that tells lists of boxes apart.
  static int number_of(const std::vector<Detection>& detections) {
    std::string bytes;
    for (const Detection& d : detections) {
      const double values[] = {d.box.x, d.box.y, d.box.width, d.box.height, d.score, 1.0 * d.class_index};
      bytes.append(reinterpret_cast<const char*>(values), sizeof(values));
    }
    return static_cast<int>(std::hash<std::string>()(bytes));
  }

  const BoxDecoder decoder_;
  const BoxOptions options_;
  const Dataset& dataset_;
  std::vector<ImageBoxes> images_;
  std::vector<int> predictions_;
  bool finite_ = true;
};

}  // namespace

std::unique_ptr<Scorer> make_scorer(const Task& task, const EvaluationSet& set) {
  if (set.sharing && task.labels != Labels::image)
    throw usage_error(fmt::format("evaluation with data.labels: {} is one process's", name_in(kLabels, task.labels)));
  if (task.labels == Labels::boxes) return std::make_unique<BoxScorer>(task, set);
  return std::make_unique<ClassScorer>(task, set);
}

}  // namespace octet
