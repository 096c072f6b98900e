// SPDX-License-Identifier: Apache-2.0
// Measures a program on a data set. Float models, the simulation, the QAT graph and engines are all measured as
// Programs (src/engine/engine.h). Two networks on the same images: how much do their scores differ, and could it be
// chance? Both see every image, so the evidence lies in the images that one of them has right and the other wrong
// (McNemar 1947).
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
  double ap = 0, ap50 = 0;    ///< of detectors (src/eval/metrics.h)
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

class Scorer {
 public:
  virtual ~Scorer() = default;
  /// Takes in the network's outputs for a batch of the set, float32 as task.outputs() orders them.
  virtual void add(const Batch& batch, const BatchOutputs& outputs) = 0;
  virtual std::string so_far() const = 0;  ///< "top-1 91.25 %", for the progress bar
  /// Replaces what this process took in by what all took in, in the order of the set, so that sums have the bits that
  /// one process gives.
  virtual void take_all(const Sharing& sharing, int batch_size) = 0;
  /// Fills in the scores of the result, and what they are made of.
  virtual void finish(Evaluation& result) = 0;
};

/// Returns the scorer of a task over that set.
std::unique_ptr<Scorer> make_scorer(const Task& task, const EvaluationSet& set);

struct Paired {
  long images = 0;
  long only_first = 0, only_second = 0;  ///< images that only that network has right, or has more pixels of right
  double points = 0;                     ///< 100 * (score of the first - score of the second)
  /// 95 % interval of `points`: d +- 1.96 sqrt(b + c - (b - c)^2 / n) / n with b = only_first, c = only_second,
  /// d = (b - c) / n. Wald's interval of a difference of paired proportions: Agresti, Categorical Data Analysis, 2nd
  /// edition (2002), 10.1.1. Worked (there): n 1600, b 150, c 86: 4.0 points, 2.1 to 5.9.
  double low = 0, high = 0;
  /// Two-sided mid-p value of McNemar's test, good for few discordant images too: Fagerland, Lydersen and Laake, The
  /// McNemar test for binary matched-pairs data, BMC Medical Research Methodology 13:91 (2013). Worked (there): b 1,
  /// c 7: 0.039.
  double p_value = 1;

  /// Returns whether the difference is significant by both the interval and the test: with few discordant images the
  /// interval is too narrow.
  bool told_apart() const { return (low > 0 || high < 0) && p_value < 0.05; }
  bool is_loss() const { return told_apart() && points > 0; }  ///< the second network is significantly worse
  bool is_gain() const { return told_apart() && points < 0; }  ///< significantly better
};

/// Compares two networks of which `only_first` and `only_second` of `images` images only the one has right.
Paired paired(long images, long only_first, long only_second);

/// Returns the two-sided mid-p value of the test whether only_first and only_second come from a fair coin.
double sign_test(long only_first, long only_second);

/// Compares two evaluations over the images that both have seen: the first ones, where one saw fewer. Segmentations are
/// compared by paired_pixels(), detectors by paired_boxes().
Paired paired(const Evaluation& first, const Evaluation& second);

/// Compares two segmentations. Pixels of an image are not independent trials, but images are: the interval is that of
/// the bootstrap over images (Efron and Tibshirani, An introduction to the bootstrap, 1993, 13.3: percentiles of 2,000
/// draws, the same in every run), and the p-value that of the sign test over the images of which one network has more
/// pixels right.
Paired paired_pixels(const Evaluation& first, const Evaluation& second);

/// Compares two detectors. AP is no mean over images: the interval is that of the jackknife that leaves out each of 20
/// groups of images in turn (Efron and Tibshirani, 11.5, with groups; Student's t of 19 degrees of freedom), and the
/// p-value that of the normal distribution with the same deviation. Of no image one can say which network has it right:
/// only_first and only_second are 0.
Paired paired_boxes(const Evaluation& first, const Evaluation& second);

}  // namespace octet
