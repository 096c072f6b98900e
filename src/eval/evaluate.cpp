// SPDX-License-Identifier: Apache-2.0
#include "src/eval/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <span>

#include "src/base/error.h"
#include "src/base/numbers.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/eval/metrics.h"
#include "src/eval/paired.h"
#include "src/net/shapes.h"

namespace octet {
namespace {

/// Throws Error(usage) unless `network`, a Graph or an Int8Graph, has the task's output as its only one.
template <typename Network>
void require_output(const Task& task, const std::string& name, const Network& network) {
  const Shape& first = network.nodes[network.outputs.front()].shape;
  const bool one = network.outputs.size() == 1;
  if (one && first == task.output) return;
  const bool classifies = first.h == 1 && first.w == 1;
  const std::string cure =
      task.classes() == 1           ? "; images without labels are for octet quantize"
      : !one                        ? "; train one output"
      : task.pixels() && classifies ? "; data.labels: pixels wants a network of segmentation, such as model.name: unet"
      : !task.pixels() && !classifies ? "; a network that answers for every pixel learns from data.labels: pixels"
                                      : "";
  throw usage_error(fmt::format("{}: gives {}, the data set has {} classes for {}, so it must give one output, {}{}",
                                name, outputs_text(network), task.classes(),
                                task.pixels() ? "each pixel" : "each picture", to_string(task.output), cure));
}

}  // namespace

Task task_of(const Dataset& dataset, const Transform& transform) {
  const auto classes = static_cast<int>(dataset.class_names().size());
  const bool pixels = dataset.labels() == Labels::pixels;
  return {dataset.labels(), {classes, pixels ? transform.height : 1, pixels ? transform.width : 1}};
}

const ScoreNames& score_names(Labels labels) {
  static constexpr ScoreNames kImage{"top-1", "top-1", "top-5", "top1"};
  static constexpr ScoreNames kPixels{"mean IoU", "pixels", "pixels", "mean_iou"};
  return labels == Labels::image ? kImage : kPixels;
}

void require_answers(const Task& task, const Graph& graph) { require_output(task, "model " + graph.name, graph); }

void require_answers(const Task& task, const Int8Graph& graph, const std::string& name) {
  require_output(task, name, graph);
  if (graph.nodes[graph.outputs.front()].float_output) return;
  throw usage_error(fmt::format("{}: its output '{}' gives codes, the answers must be float logits", name,
                                graph.nodes[graph.outputs.front()].name));
}

std::vector<size_t> Sharing::mine(const std::vector<size_t>& indices, int batch_size) const {
  std::vector<size_t> result;
  const auto batch = static_cast<size_t>(batch_size);
  for (size_t begin = rank * batch; begin < indices.size(); begin += size * batch) {
    const size_t end = std::min(begin + batch, indices.size());
    result.insert(result.end(), indices.begin() + static_cast<long>(begin), indices.begin() + static_cast<long>(end));
  }
  return result;
}

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLatencyWarmUps = 5;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Times runs on single images of `images`, [count, image_bytes].
void measure_latency(Program& program, const std::vector<uint8_t>& images, size_t image_bytes,
                     const EvaluateOptions& options, Evaluation& result) {
  const int count = static_cast<int>(images.size() / image_bytes);
  std::vector<float> logits(result.task.answers() * options.classes);
  program.prepare(1);
  const auto start = Clock::now();
  for (int i = 0; i < std::min(kLatencyWarmUps, count) && seconds_since(start) < options.latency_seconds / 4; ++i) {
    program.run(images.data() + i * image_bytes, 1, logits.data());
  }
  std::vector<double> milliseconds;
  while (static_cast<int>(milliseconds.size()) < count) {
    throw_if_interrupted();
    if (!milliseconds.empty() && seconds_since(start) > options.latency_seconds) break;
    const auto run_start = Clock::now();
    program.run(images.data() + milliseconds.size() * image_bytes, 1, logits.data());
    milliseconds.push_back(1e3 * seconds_since(run_start));
  }
  result.latency_runs = static_cast<int>(milliseconds.size());
  result.latency_median_ms = median(milliseconds);
  result.latency_p99_ms = percentile(std::move(milliseconds), 0.99);
}

/// Adds the overlaps of a batch whose predictions are the last ones of the result.
void add_pictures(const Batch& batch, Evaluation& result) {
  const size_t answers = result.task.answers(), classes = static_cast<size_t>(result.task.classes());
  const size_t first = result.predictions.size() - batch.labels.size();
  for (size_t begin = 0; begin < batch.labels.size(); begin += answers) {
    result.overlaps.resize(result.overlaps.size() + classes);
    add_overlaps(std::span(batch.labels).subspan(begin, answers),
                 std::span(result.predictions).subspan(first + begin, answers),
                 std::span(result.overlaps).last(classes));
  }
}

/// What a pass over the images collects in addition to the result.
struct Pass {
  explicit Pass(int classes) : metrics(classes) {}
  Metrics metrics;
  std::vector<Answer> answers;          // collected if processes share the set
  std::vector<uint8_t> latency_images;  // the first images, for measure_latency()
};

void add(const Answer& answer, Pass& pass, Evaluation& result) {
  pass.metrics.add(answer);
  result.predictions.push_back(answer.prediction);
  result.right.push_back(answer.prediction == answer.label);
}

std::string score_so_far(const Pass& pass, const Evaluation& result) {
  return fmt::format("{} {}", score_names(result.task.labels).share, percent(pass.metrics.top1()));
}

/// Runs the program on `indices`, which may be empty.
void run_over(const std::vector<size_t>& indices, Program& program, const EvaluationSet& set,
              const EvaluateOptions& options, Progress& progress, Pass& pass, Evaluation& result) {
  if (indices.empty()) return;
  const long total = static_cast<long>(indices.size());
  const size_t image_bytes = static_cast<size_t>(set.transform.height) * set.transform.width * set.transform.channels;
  const size_t classes = options.classes, answers = result.task.answers();
  std::vector<float> logits;
  double timed_seconds = 0;
  long timed_images = 0;
  LoaderOptions loading;
  loading.batch_size = options.batch_size;
  loading.workers = set.workers;
  Loader loader(*set.dataset, indices, set.transform, loading);
  Batch batch;
  while (loader.next(batch)) {
    throw_if_interrupted();
    program.prepare(batch.size);  // the last batch may be smaller
    logits.resize(batch.size * answers * classes);
    const auto start = Clock::now();
    program.run(batch.images.data(), batch.size, logits.data());
    const double seconds = seconds_since(start);
    if (result.images > 0 || batch.size == total) {
      timed_seconds += seconds;
      timed_images += batch.size;
    }
    for (size_t i = 0; i < batch.labels.size(); ++i) {
      const Answer answer = judge({logits.data() + i * classes, classes}, batch.labels[i]);
      add(answer, pass, result);
      if (set.sharing) pass.answers.push_back(answer);
    }
    if (result.task.pixels()) add_pictures(batch, result);
    result.images += batch.size;
    const size_t wanted = static_cast<size_t>(options.latency_images) * image_bytes;
    const size_t missing = wanted - std::min(wanted, pass.latency_images.size());
    pass.latency_images.insert(pass.latency_images.end(), batch.images.begin(),
                               batch.images.begin() + static_cast<long>(std::min(missing, batch.size * image_bytes)));
    if (set.sharing)  // the score of all is not known yet
      progress.update(set.sharing->so_far(result.images, set.indices.size()));
    else
      progress.update(result.images, score_so_far(pass, result));
  }
  if (timed_seconds > 0) result.images_per_second = static_cast<double>(timed_images) / timed_seconds;
}

/// Replaces this process's answers by those of all, counted in the order of the set, so that sums have the same bits as
/// in one process.
void take_all(const Sharing& sharing, const EvaluateOptions& options, Pass& pass, Evaluation& result) {
  const std::vector<Answer> all = Sharing::in_order(sharing.all(pass.answers), options.batch_size);
  pass.metrics = Metrics(options.classes);
  result.predictions.clear();
  result.right.clear();
  for (const Answer& answer : all) add(answer, pass, result);
  result.images = static_cast<long>(all.size());
}

}  // namespace

Evaluation evaluate(const std::string& name, Program& program, const EvaluationSet& set,
                    const EvaluateOptions& options) {
  if (set.indices.empty()) throw data_error(fmt::format("evaluation of {}: the {} set is empty", name, set.name));
  Evaluation result;
  result.name = name;
  result.task = task_of(*set.dataset, set.transform);
  result.task.output.c = options.classes;
  if (set.sharing && result.task.pixels()) throw usage_error("evaluation of pixels' classes is one process's");
  Pass pass(options.classes);
  const Sharing* const sharing = set.sharing.get();
  {
    Progress progress("evaluate " + name, static_cast<long>(set.indices.size()));
    run_over(sharing ? sharing->mine(set.indices, options.batch_size) : set.indices, program, set, options, progress,
             pass, result);
    if (sharing) {
      take_all(*sharing, options, pass, result);
      progress.update(result.images, score_so_far(pass, result));
    }
  }
  result.top1 = pass.metrics.top1();
  result.top5 = pass.metrics.top5();
  result.loss = pass.metrics.loss();
  result.confusion = pass.metrics.confusion();
  if (result.task.pixels()) result.mean_iou = mean_iou(result.overlaps, options.classes);
  const size_t image_bytes = static_cast<size_t>(set.transform.height) * set.transform.width * set.transform.channels;
  const bool times_single_images = sharing == nullptr || sharing->first();
  if (times_single_images && !pass.latency_images.empty())
    measure_latency(program, pass.latency_images, image_bytes, options, result);
  if (sharing) sharing->gather({});  // the other processes wait, so that nothing disturbs the first one's timing
  return result;
}

std::string accuracy_key(const Evaluation& e) { return fmt::format("{}_{}", e.name, score_names(e.task.labels).key); }

long differing_predictions(const Evaluation& a, const Evaluation& b) {
  const size_t count = std::min(a.predictions.size(), b.predictions.size());
  long differing = 0;
  for (size_t i = 0; i < count; ++i) differing += a.predictions[i] != b.predictions[i];
  return differing;
}

}  // namespace octet
