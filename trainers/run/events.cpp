#include "trainers/run/events.h"

#include <utility>

#include "src/events/event_file.h"
#include "trainers/run/metrics_file.h"

namespace octet {
namespace {

long epochs_so_far(const RunDirectory& directory) {
  return static_cast<long>(read_metrics(directory.metrics()).size());
}

void add_ranges(const QuantizedModel& model, EventFile::Scalars& scalars) {
  const std::vector<QParams> edges = model.edges();
  const Graph& graph = model.prepared().graph;
  for (size_t n = 0; n < edges.size(); ++n) {
    const std::string tag = "ranges/" + graph.nodes[n].name;
    scalars.emplace_back(tag + "/low", dequantize(edges[n].quant_min, edges[n]));
    scalars.emplace_back(tag + "/high", dequantize(edges[n].quant_max, edges[n]));
  }
}

void add_histogram(const std::string& tag, const Histogram& from, std::vector<EventHistogram>& histograms) {
  if (!from.counts.empty()) histograms.push_back({tag, from.lo, from.hi, from.counts});
}

}  // namespace

std::shared_ptr<EventFile> open_events(const RunDirectory& directory) {
  const long epochs = epochs_so_far(directory);
  return std::make_shared<EventFile>(directory.events(), epochs > 0 ? epochs + 1 : 0);
}

void record_epoch(const Run& run, const EpochMetrics& m, const QuantizedModel* model) {
  if (!run.events) return;
  EventFile::Scalars scalars = {{"loss/" + m.phase + "/training", m.train_cross_entropy},
                                {"loss/" + m.phase + "/validation", m.validation_loss},
                                {"top1/" + m.phase + "/training", m.train_top1},
                                {"top1/" + m.phase + "/validation", m.validation_top1},
                                {"learning_rate/" + m.phase, m.learning_rate},
                                {"images_per_second/" + m.phase, m.images_per_second},
                                {"data_wait_share/" + m.phase, m.data_wait_share},
                                {"seconds/" + m.phase, m.seconds}};
  if (m.validation_mean_iou) scalars.emplace_back("mean_iou/" + m.phase + "/validation", *m.validation_mean_iou);
  if (model != nullptr) add_ranges(*model, scalars);
  run.events->add(epochs_so_far(run.directory), scalars);
}

void record_report(const Run& run, const Report& report) {
  if (!run.events) return;
  EventFile::Scalars scores;
  for (const Row& row : report.rows) scores.emplace_back("test/" + row.evaluation.name, row.evaluation.score());
  std::vector<EventHistogram> histograms;
  for (const ReportLayer& layer : report.layers) {
    add_histogram("weights/" + layer.statistics.name, layer.statistics.weights, histograms);
    add_histogram("activations/" + layer.statistics.name, layer.statistics.activations, histograms);
  }
  run.events->add(epochs_so_far(run.directory), scores, histograms);
}

}  // namespace octet
