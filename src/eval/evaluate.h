// SPDX-License-Identifier: Apache-2.0
// Measures a program on a data set. Float models, the simulation, the QAT graph and engines are all measured as
// Programs (src/engine/engine.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "src/data/loader.h"
#include "src/detect/decode.h"
#include "src/engine/engine.h"
#include "src/eval/average_precision.h"
#include "src/eval/metrics.h"
#include "src/net/int8_graph.h"

namespace octet {

/// What a network is asked for: the class of each image, or of each of its pixels (segmentation), or boxes (detection).
struct Task {
  Labels labels = Labels::image;
  Shape output;  ///< the network's only output: float logits, [classes, 1, 1] or [classes, height, width]. For boxes it
                 ///< says the number of classes alone
  std::shared_ptr<const BoxDecoder> detector = nullptr;  ///< for boxes: the outputs, and how they become boxes

  /// Returns the shapes of the network's outputs, all float32.
  std::vector<Shape> outputs() const;
  bool pixels() const { return labels == Labels::pixels; }
  int classes() const { return output.c; }
  /// Returns the number of answers (labels, predictions) for an image.
  size_t answers() const { return static_cast<size_t>(output.h) * output.w; }
};

/// Returns what a data set asks for. detector: of the network, where the labels are boxes.
Task task_of(const Dataset& dataset, const Transform& transform, std::shared_ptr<const BoxDecoder> detector = nullptr);

/// The names of a task's figures: top-1, top-1, top-5 for images; mean IoU, pixels, pixels for pixels; AP, box IoU,
/// AP50 for boxes.
struct ScoreNames {
  const char* score;   ///< what networks are judged, chosen and compared by
  const char* share;   ///< the share of right answers
  const char* second;  ///< the figure shown next to the score
  const char* key;     ///< the score's key in files: "top1"
};
const ScoreNames& score_names(Labels labels);

/// Throws Error(usage) unless the network has the outputs that the task asks for. `name` is the network's, for the
/// message.
void require_answers(const Task& task, const Graph& graph);
void require_answers(const Task& task, const Int8Graph& graph, const std::string& name);

/// Several processes that evaluate or compare on one set, each image once; the results are those of one process.
/// Batches stay those of one process, so that a float network computes the same bits for an image: batch b belongs to
/// process b % size. All processes measure the same programs in the same order.
struct Sharing {
  using Bytes = std::vector<uint8_t>;
  int rank = 0, size = 1;
  std::function<std::vector<Bytes>(const Bytes& mine)> gather;  ///< returns every process's bytes, by rank; waits

  bool first() const { return rank == 0; }
  /// Returns those of a set's indices that are in this process's batches.
  std::vector<size_t> mine(const std::vector<size_t>& indices, int batch_size) const;

  /// Estimates how many images of a set of `whole` all processes are done with when this one is done with `mine`.
  long so_far(long mine, size_t whole) const { return std::min(mine * size, static_cast<long>(whole)); }

  /// Returns every process's values, by rank.
  template <class T>
  std::vector<std::vector<T>> all(const std::vector<T>& values) const {
    static_assert(std::is_trivially_copyable_v<T>);
    Bytes bytes(values.size() * sizeof(T));
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    std::vector<std::vector<T>> result;
    for (const Bytes& from : gather(bytes)) {
      result.emplace_back(from.size() / sizeof(T));
      if (!from.empty()) std::memcpy(result.back().data(), from.data(), from.size());
    }
    return result;
  }

  /// Puts values of the processes' images, one for each image of mine(), into the order of the set.
  template <class T>
  static std::vector<T> in_order(const std::vector<std::vector<T>>& parts, size_t batch_size) {
    std::vector<T> result;
    std::vector<size_t> taken(parts.size());
    for (size_t part = 0; taken[part] < parts[part].size(); part = (part + 1) % parts.size()) {
      const size_t end = std::min(taken[part] + batch_size, parts[part].size());
      result.insert(result.end(), parts[part].begin() + static_cast<long>(taken[part]),
                    parts[part].begin() + static_cast<long>(end));
      taken[part] = end;
    }
    return result;
  }
};

/// The images of a data set that programs are measured on, in this order. The data set must outlive it.
struct EvaluationSet {
  std::string name;  ///< "validation" or "test", for messages
  const Dataset* dataset = nullptr;
  std::vector<size_t> indices;
  Transform transform;
  int workers = 2;                                       ///< threads that decode ahead
  int threads = 0;                                       ///< that judge the answers; 0: all usable cores
  std::shared_ptr<const BoxDecoder> detector = nullptr;  ///< see Task
  /// The processes that share the set, or null if this process measures alone. All of them get the results of the whole
  /// set. Speeds are those of the first process, which alone is timed on single images.
  std::shared_ptr<const Sharing> sharing;
};

struct Evaluation {
  std::string name;  ///< "float", "ptq", "simulation", "qat_graph", or an engine's name: "cpu", "reference"
  Task task;
  long images = 0;
  double top1 = 0, top5 = 0;  ///< shares of the answers, 0..1
  double mean_iou = 0;        ///< of segmentations
  double ap = 0, ap50 = 0;    ///< of detectors (src/eval/average_precision.h)
  double loss = 0;            ///< mean cross-entropy of the answers; of detectors 1 - AP, NaN if an output is no number
  /// Speed of run() alone, without decoding. The first batch is a warm-up, unless it is the only one.
  double images_per_second = 0;
  double latency_median_ms = 0, latency_p99_ms = 0;  ///< of single images (batch 1); 0: not measured
  int latency_runs = 0;                              ///< how many single images were timed
  /// The arg max of every answer, in the order of the set; of detectors for each image a number that is another where
  /// the boxes are others.
  std::vector<int> predictions;
  std::vector<bool> right;        ///< whether the prediction is the label
  std::vector<Overlap> overlaps;  ///< [images, classes], of segmentations
  std::vector<long> confusion;    ///< [classes, classes] of answers, row: label
  std::vector<ImageBoxes> boxes;  ///< [images], of detectors

  double score() const;   ///< what networks are judged by
  double second() const;  ///< shown next to it
};

struct EvaluateOptions {
  int classes = 0;              ///< number of the program's logits for each answer
  int batch_size = 64;          ///< at most what the program was compiled for
  int latency_images = 100;     ///< how many images are timed one by one; 0: none
  double latency_seconds = 10;  ///< a slow program is timed on fewer images, until so many seconds have passed
};

/// Runs `program` on the set in order, with a progress bar; `name` becomes the result's name. Throws Error(interrupted)
/// on Ctrl-C, Error(data) when the set is empty or its labels do not fit the model.
Evaluation evaluate(const std::string& name, Program& program, const EvaluationSet& set,
                    const EvaluateOptions& options);

/// Returns the score's key among a checkpoint's accuracies: "cpu_top1", "cpu_mean_iou".
std::string accuracy_key(const Evaluation& evaluation);

/// Returns the number of answers in which the two differ, over the answers that both have.
long differing_predictions(const Evaluation& a, const Evaluation& b);

}  // namespace octet
