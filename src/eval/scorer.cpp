// SPDX-License-Identifier: Apache-2.0
#include "src/eval/evaluate.h"

#include <fmt/format.h>

#include <exception>
#include <limits>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/threads.h"

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
    const std::vector<Answer> answers = judged(logits, batch.labels, classes);
    if (task_.pixels()) return add_images(batch, answers);
    for (const Answer& answer : answers) take(answer, metrics_);
    if (shared_) answers_.insert(answers_.end(), answers.begin(), answers.end());
  }

  std::string so_far() const override {
    return fmt::format("{} {}", score_names(task_.labels).share, percent(metrics_.top1()));
  }

  void take_all(const Sharing& sharing, int batch_size) override {
    if (task_.pixels()) return take_all_images(sharing, batch_size);
    const std::vector<Answer> all = Sharing::in_order(sharing.all(answers_), static_cast<size_t>(batch_size));
    metrics_ = Metrics(task_.classes());
    predictions_.clear();
    right_.clear();
    for (const Answer& answer : all) take(answer, metrics_);
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
  void take(const Answer& answer, Metrics& metrics) {
    metrics.add(answer);
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

  /// Takes in the pixels of a batch, summed by image first: several processes exchange these sums, not all answers.
  void add_images(const Batch& batch, const std::vector<Answer>& all) {
    const size_t answers = task_.answers(), classes = static_cast<size_t>(task_.classes());
    for (size_t begin = 0; begin < batch.labels.size(); begin += answers) {
      Metrics of_image(task_.classes());
      for (const Answer& answer : std::span(all).subspan(begin, answers)) take(answer, of_image);
      sums_.push_back(of_image.sums());
      metrics_.add(of_image.sums());
      metrics_.add_confusion(of_image.confusion());
      overlaps_.resize(overlaps_.size() + classes);
      add_overlaps(std::span(batch.labels).subspan(begin, answers), std::span(predictions_).last(answers),
                   std::span(overlaps_).last(classes));
    }
  }

  void take_all_images(const Sharing& sharing, int batch_size) {
    const auto in_order = [&](const auto& mine, size_t of_image) {
      return Sharing::in_order(sharing.all(mine), static_cast<size_t>(batch_size) * of_image);
    };
    const auto confusions = sharing.all(metrics_.confusion());
    const auto answers = in_order(pixel_answers(), task_.answers());
    sums_ = in_order(sums_, 1);
    overlaps_ = in_order(overlaps_, static_cast<size_t>(task_.classes()));
    metrics_ = Metrics(task_.classes());
    for (const Metrics::Sums& sums : sums_) metrics_.add(sums);
    for (const std::vector<long>& confusion : confusions) metrics_.add_confusion(confusion);
    predictions_.clear();
    right_.clear();
    for (const PixelAnswer& answer : answers) {
      predictions_.push_back(answer.prediction);
      right_.push_back(answer.right);
    }
  }

  /// What finish() writes of a pixel. Masks have at most 255 classes.
  struct PixelAnswer {
    uint8_t prediction, right;
  };

  std::vector<PixelAnswer> pixel_answers() const {
    std::vector<PixelAnswer> all;
    for (size_t i = 0; i < predictions_.size(); ++i)
      all.push_back({static_cast<uint8_t>(predictions_[i]), static_cast<uint8_t>(right_[i])});
    return all;
  }

  const Task task_;
  const bool shared_;
  const int threads_;
  Metrics metrics_;
  std::vector<int> predictions_;
  std::vector<bool> right_;
  std::vector<Overlap> overlaps_;
  std::vector<Metrics::Sums> sums_;  // of each image, if its pixels have classes
  std::vector<Answer> answers_;      // of this process, if several share the set
  std::optional<ThreadPool> pool_;
};

/// Boxes, by COCO's average precision.
class BoxScorer : public Scorer {
 public:
  BoxScorer(const Task& task, const EvaluationSet& set)
      : decoder_(*task.detector),
        options_(measuring_options(decoder_.head)),
        dataset_(*set.dataset),
        indices_(set.indices) {}

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

  void take_all(const Sharing& sharing, int batch_size) override {
    std::vector<size_t> counts;
    std::vector<Detection> found;
    for (const ImageBoxes& image : images_) {
      counts.push_back(image.detections.size());
      found.insert(found.end(), image.detections.begin(), image.detections.end());
    }
    const auto all_counts = sharing.all(counts);
    const auto all_found = sharing.all(found);
    std::vector<std::vector<ImageBoxes>> parts(all_counts.size());
    for (size_t part = 0; part < parts.size(); ++part) {
      auto next = all_found[part].begin();
      for (const size_t count : all_counts[part]) {
        const auto end = next + static_cast<long>(count);
        parts[part].push_back({{}, {next, end}});
        next = end;
      }
    }
    images_ = Sharing::in_order(parts, batch_size);
    predictions_.clear();
    for (size_t i = 0; i < images_.size(); ++i) {
      images_[i].labels = dataset_.boxes(indices_[i]);
      predictions_.push_back(number_of(images_[i].detections));
    }
    for (const std::vector<uint8_t>& finite : sharing.all(std::vector<uint8_t>{finite_}))
      finite_ = finite_ && finite[0];
  }

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
  const std::vector<size_t> indices_;  // of the set
  std::vector<ImageBoxes> images_;
  std::vector<int> predictions_;
  bool finite_ = true;
};

}  // namespace

std::unique_ptr<Scorer> make_scorer(const Task& task, const EvaluationSet& set) {
  if (task.labels == Labels::boxes) return std::make_unique<BoxScorer>(task, set);
  return std::make_unique<ClassScorer>(task, set);
}

}  // namespace octet
