// SPDX-License-Identifier: Apache-2.0
#include "src/eval/evaluate.h"

#include <fmt/format.h>

#include <chrono>

#include "src/base/error.h"
#include "src/base/numbers.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/net/shapes.h"

namespace octet {
namespace {

/// Throws Error(usage) unless `network`, a Graph or an Int8Graph, has the outputs of the task.
template <typename Network>
void require_outputs(const Task& task, const std::string& name, const Network& network) {
  if (task.labels == Labels::boxes) {
    if (!task.detector)
      throw usage_error(name + ": how its outputs become boxes is unknown, and the data set has boxes");
    if (task.detector->classes() == task.classes()) return;
    throw usage_error(
        fmt::format("{}: boxes of {} classes, the data set has {}", name, task.detector->classes(), task.classes()));
  }
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
                                task.pixels() ? "each pixel" : "each image", to_string(task.output), cure));
}

}  // namespace

std::vector<Shape> Task::outputs() const {
  if (labels != Labels::boxes) return {output};
  std::vector<Shape> shapes;
  for (const BoxDecoder::Output& of : detector->outputs) shapes.push_back(of.shape);
  return shapes;
}

double Evaluation::score() const { return task.labels == Labels::boxes ? ap : task.pixels() ? mean_iou : top1; }

double Evaluation::second() const { return task.labels == Labels::boxes ? ap50 : task.pixels() ? top1 : top5; }

Task task_of(const Dataset& dataset, const Transform& transform, std::shared_ptr<const BoxDecoder> detector) {
  const auto classes = static_cast<int>(dataset.class_names().size());
  const bool pixels = dataset.labels() == Labels::pixels;
  return {
      dataset.labels(), {classes, pixels ? transform.height : 1, pixels ? transform.width : 1}, std::move(detector)};
}

const ScoreNames& score_names(Labels labels) {
  static constexpr ScoreNames kImage{"top-1", "top-1", "top-5", "top1"};
  static constexpr ScoreNames kPixels{"mean IoU", "pixels", "pixels", "mean_iou"};
  static constexpr ScoreNames kBoxes{"AP", "box IoU", "AP50", "ap"};
  return labels == Labels::boxes ? kBoxes : labels == Labels::image ? kImage : kPixels;
}

void require_answers(const Task& task, const Graph& graph) { require_outputs(task, "model " + graph.name, graph); }

void require_answers(const Task& task, const Int8Graph& graph, const std::string& name) {
  require_outputs(task, name, graph);
  for (const int output : graph.outputs)
    if (!graph.nodes[output].float_output)
      throw usage_error(fmt::format("{}: its output '{}' gives codes, the answers must be float logits", name,
                                    graph.nodes[output].name));
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

/// Memory for the outputs of up to `batch` images.
class FloatBuffers {
 public:
  FloatBuffers(const Task& task, int batch) {
    for (const Shape& shape : task.outputs())
      buffers_.emplace_back(static_cast<size_t>(shape.elements()) * batch * sizeof(float));
    for (std::vector<uint8_t>& buffer : buffers_) pointers_.push_back(buffer.data());
  }
  OutputMemory memory() const { return OutputMemory(pointers_); }
  const BatchOutputs& all() const { return buffers_; }

 private:
  BatchOutputs buffers_;
  std::vector<void*> pointers_;
};

/// Times runs on single images of `images`, [count, image_bytes].
void measure_latency(Program& program, const std::vector<uint8_t>& images, size_t image_bytes,
                     const EvaluateOptions& options, Evaluation& result) {
  const int count = static_cast<int>(images.size() / image_bytes);
  FloatBuffers outputs(result.task, 1);
  program.prepare(1);
  const auto start = Clock::now();
  for (int i = 0; i < std::min(kLatencyWarmUps, count) && seconds_since(start) < options.latency_seconds / 4; ++i) {
    program.run(images.data() + i * image_bytes, 1, outputs.memory());
  }
  std::vector<double> milliseconds;
  while (static_cast<int>(milliseconds.size()) < count) {
    throw_if_interrupted();
    if (!milliseconds.empty() && seconds_since(start) > options.latency_seconds) break;
    const auto run_start = Clock::now();
    program.run(images.data() + milliseconds.size() * image_bytes, 1, outputs.memory());
    milliseconds.push_back(1e3 * seconds_since(run_start));
  }
  result.latency_runs = static_cast<int>(milliseconds.size());
  result.latency_median_ms = median(milliseconds);
  result.latency_p99_ms = percentile(std::move(milliseconds), 0.99);
}

/// What a pass over the images collects in addition to the result.
struct Pass {
  std::unique_ptr<Scorer> scorer;
  std::vector<uint8_t> latency_images;  // the first images, for measure_latency()
};

/// Runs the program on `indices`, which may be empty.
void run_over(const std::vector<size_t>& indices, Program& program, const EvaluationSet& set,
              const EvaluateOptions& options, Progress& progress, Pass& pass, Evaluation& result) {
  if (indices.empty()) return;
  const long total = static_cast<long>(indices.size());
  const size_t image_bytes = set.transform.bytes();
  const FloatBuffers outputs(result.task, options.batch_size);
  double timed_seconds = 0;
  long timed_images = 0;
  Loader loader(*set.dataset, indices, set.transform, {.batch_size = options.batch_size, .workers = set.workers});
  Batch batch;
  while (loader.next(batch)) {
    throw_if_interrupted();
    program.prepare(batch.size);  // the last batch may be smaller
    const auto start = Clock::now();
    program.run(batch.images.data(), batch.size, outputs.memory());
    const double seconds = seconds_since(start);
    if (result.images > 0 || batch.size == total) {
      timed_seconds += seconds;
      timed_images += batch.size;
    }
    pass.scorer->add(batch, outputs.all());
    result.images += batch.size;
    const size_t wanted = static_cast<size_t>(options.latency_images) * image_bytes;
    const size_t missing = wanted - std::min(wanted, pass.latency_images.size());
    pass.latency_images.insert(pass.latency_images.end(), batch.images.begin(),
                               batch.images.begin() + static_cast<long>(std::min(missing, batch.size * image_bytes)));
    if (set.sharing)  // the score of all is not known yet
      progress.update(set.sharing->so_far(result.images, set.indices.size()));
    else
      progress.update(result.images, pass.scorer->so_far());
  }
  if (timed_seconds > 0) result.images_per_second = static_cast<double>(timed_images) / timed_seconds;
}

}  // namespace

Evaluation evaluate(const std::string& name, Program& program, const EvaluationSet& set,
                    const EvaluateOptions& options) {
  if (set.indices.empty()) throw data_error(fmt::format("evaluation of {}: the {} set is empty", name, set.name));
  Evaluation result;
  result.name = name;
  result.task = task_of(*set.dataset, set.transform, set.detector);
  result.task.output.c = options.classes;
  Pass pass{.scorer = make_scorer(result.task, set)};
  const Sharing* const sharing = set.sharing.get();
  {
    Progress progress("evaluate " + name, static_cast<long>(set.indices.size()));
    run_over(sharing ? sharing->mine(set.indices, options.batch_size) : set.indices, program, set, options, progress,
             pass, result);
    if (sharing) {
      pass.scorer->take_all(*sharing, options.batch_size);
      progress.update(static_cast<long>(set.indices.size()), pass.scorer->so_far());
    }
  }
  pass.scorer->finish(result);
  const bool times_single_images = sharing == nullptr || sharing->first();
  if (times_single_images && !pass.latency_images.empty())
    measure_latency(program, pass.latency_images, set.transform.bytes(), options, result);
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
