// Measures a Program on a data set. Float models, the simulation, the QAT graph and engines all come here as Programs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/data/loader.h"
#include "src/engine/engine.h"
#include "src/eval/sharing.h"
#include "src/eval/task.h"

namespace octet {

/// What programs are measured on: these images of the data set, in this order. The data set outlives it.
struct EvaluationSet {
  std::string name;  ///< "validation", "test": for messages
  const Dataset* dataset = nullptr;
  std::vector<size_t> indices;
  Transform transform;
  int workers = 2;  ///< threads that decode ahead
  /// With the others of these processes, all of which get the results of the whole set; speeds are the first one's,
  /// which alone is timed with single images. Null: this process alone.
  std::shared_ptr<const Sharing> sharing;
};

/// Pixels of a class in one picture: that have it and were taken for it; that have it or were taken for it.
struct Overlap {
  long both = 0, either = 0;
  bool operator==(const Overlap&) const = default;
};

struct Evaluation {
  std::string name;  ///< "float", "ptq", "simulation", "qat_graph", or an engine's name: "cpu", "reference"
  Task task;
  long images = 0;
  double top1 = 0, top5 = 0;  ///< shares of the answers, 0..1: one a picture, or one a pixel
  double mean_iou = 0;        ///< of pixels' answers (src/eval/segmentation.h)
  double loss = 0;            ///< mean cross-entropy of the answers
  double images_per_second =
      0;  ///< of run() alone, without decoding; the first batch is warm-up unless it is the only one
  double latency_median_ms = 0,
         latency_p99_ms = 0;      ///< of single images (batch 1), measured on some of them; 0: not measured
  int latency_runs = 0;           ///< how many single images were timed
  std::vector<int> predictions;   ///< arg max of every answer, by position in the index list
  std::vector<bool> right;        ///< whether that is the label
  std::vector<Overlap> overlaps;  ///< [images, classes], of pixels' answers
  std::vector<long> confusion;    ///< [classes, classes] of answers, row: label

  double score() const { return task.pixels() ? mean_iou : top1; }  ///< what networks are judged by
  double second() const { return task.pixels() ? top1 : top5; }     ///< shown beside it
};

struct EvaluateOptions {
  int classes = 0;              ///< of the program's logits, for each picture or, with Labels::pixels, each pixel
  int batch_size = 64;          ///< at most what the program was compiled for
  int latency_images = 100;     ///< 0: no latency measurement
  double latency_seconds = 10;  ///< a slow program is timed on fewer images
};

/// Runs `program` over the set in order, with a progress bar; `name` becomes the row's name. Throws Error(interrupted)
/// on Ctrl-C, Error(data) when the set is empty or its labels do not fit the model.
Evaluation evaluate(const std::string& name, Program& program, const EvaluationSet& set,
                    const EvaluateOptions& options);

/// The score's key in a checkpoint's accuracies: "cpu_top1", "cpu_mean_iou".
std::string accuracy_key(const Evaluation& evaluation);

/// Number of answers in which the two disagree (over the shorter of both lists).
long differing_predictions(const Evaluation& a, const Evaluation& b);

}  // namespace octet
