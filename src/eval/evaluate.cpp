#include "src/eval/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <span>

#include "src/common/error.h"
#include "src/common/interrupt.h"
#include "src/common/progress.h"
#include "src/common/samples.h"
#include "src/common/text_table.h"
#include "src/eval/metrics.h"
#include "src/eval/segmentation.h"

namespace octet {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLatencyWarmUps = 5;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Times batch-1 runs over `images` ([count, image_bytes]).
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

/// The overlaps of a batch whose predictions are the last ones.
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

}  // namespace

Evaluation evaluate(const std::string& name, Program& program, const EvaluationSet& set,
                    const EvaluateOptions& options) {
  if (set.indices.empty()) throw data_error(fmt::format("evaluation of {}: the {} set is empty", name, set.name));
  const long total = static_cast<long>(set.indices.size());
  const size_t image_bytes = static_cast<size_t>(set.transform.height) * set.transform.width * set.transform.channels;
  const size_t classes = options.classes;

  Evaluation result;
  result.name = name;
  result.task = task_of(*set.dataset, set.transform);
  result.task.output.c = options.classes;
  const size_t answers = result.task.answers();
  Metrics metrics(options.classes);
  std::vector<float> logits;
  std::vector<uint8_t> latency_images;
  double timed_seconds = 0;
  long timed_images = 0;

  LoaderOptions loading;
  loading.batch_size = options.batch_size;
  loading.workers = set.workers;
  Loader loader(*set.dataset, set.indices, set.transform, loading);
  {
    Progress progress("evaluate " + name, total);
    Batch batch;
    while (loader.next(batch)) {
      throw_if_interrupted();
      program.prepare(batch.size);  // the last batch is a size of its own
      logits.resize(batch.size * answers * classes);
      const auto start = Clock::now();
      program.run(batch.images.data(), batch.size, logits.data());
      const double seconds = seconds_since(start);
      if (result.images > 0 || batch.size == total) {
        timed_seconds += seconds;
        timed_images += batch.size;
      }
      for (size_t i = 0; i < batch.labels.size(); ++i) {
        result.predictions.push_back(metrics.add({logits.data() + i * classes, classes}, batch.labels[i]));
        result.right.push_back(result.predictions.back() == batch.labels[i]);
      }
      if (result.task.pixels()) add_pictures(batch, result);
      result.images += batch.size;
      const size_t wanted = static_cast<size_t>(options.latency_images) * image_bytes;
      const size_t missing = wanted - std::min(wanted, latency_images.size());
      latency_images.insert(latency_images.end(), batch.images.begin(),
                            batch.images.begin() + static_cast<long>(std::min(missing, batch.size * image_bytes)));
      progress.update(result.images,
                      fmt::format("{} {}", score_names(result.task.labels).share, percent(metrics.top1())));
    }
  }
  result.top1 = metrics.top1();
  result.top5 = metrics.top5();
  result.loss = metrics.loss();
  result.confusion = metrics.confusion();
  if (result.task.pixels()) result.mean_iou = mean_iou(result.overlaps, classes);
  if (timed_seconds > 0) result.images_per_second = static_cast<double>(timed_images) / timed_seconds;
  if (!latency_images.empty()) measure_latency(program, latency_images, image_bytes, options, result);
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
