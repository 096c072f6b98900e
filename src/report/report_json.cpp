// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "src/report/report.h"

namespace octet {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kReportVersion = 2;

/// Returns null for a number that is not finite or does not apply: 0 would be read as a measurement.
template <typename Number>
Json known(bool applies, Number value) {
  return applies ? Json(value) : Json(nullptr);
}

Json known(const std::optional<double>& value) { return known(value.has_value(), value.value_or(0)); }

Json headline_json(const Report& report) {
  const Headline h = headline(report);
  const bool compared = report.comparison.codes() > 0, promised = compared && report.comparison.promised();
  Json json;
  json["score"] = score_names(report.labels).score;
  const auto of = [](const Row* row, const auto& figure) {
    return row ? Json(std::invoke(figure, row->evaluation)) : Json(nullptr);
  };
  json["float_score"] = of(h.float_row, &Evaluation::score);
  json["baseline_score"] = of(h.baseline, &Evaluation::score);
  json["int8_score"] = of(h.int8_row, &Evaluation::score);
  json["float_top1"] = of(h.float_row, &Evaluation::top1);
  json["baseline"] = of(h.baseline, &Evaluation::name);
  json["baseline_top1"] = of(h.baseline, &Evaluation::top1);
  json["int8_row"] = of(h.int8_row, &Evaluation::name);
  json["int8_top1"] = of(h.int8_row, &Evaluation::top1);
  json["paired_images"] = known(h.both(), h.lost.images);
  json["only_baseline_right"] = known(h.both(), h.lost.only_first);
  json["only_int8_right"] = known(h.both(), h.lost.only_second);
  json["points_lost"] = known(h.both(), h.lost.points);
  json["points_lost_low"] = known(h.both(), h.lost.low);
  json["points_lost_high"] = known(h.both(), h.lost.high);
  json["p_value"] = known(h.both(), h.lost.p_value);
  json["told_apart"] = known(h.both(), h.lost.told_apart());
  json["ptq_points_lost"] = known(h.both() && h.ptq_row, h.ptq_lost.points);
  json["control_points_lost"] = known(h.both() && h.baseline != h.float_row, h.control_lost.points);
  json["qat_points_back"] = known(h.both() && h.ptq_row && h.qat, h.qat_points_back);
  json["size_ratio"] = known(h.size_ratio > 0, h.size_ratio);
  json["speed_up"] = known(h.speed_up > 0, h.speed_up);
  json["identical"] = known(promised || report.comparison.broken(), report.comparison.identical());
  json["differing_codes"] = known(promised, report.comparison.differing_codes());
  json["compared_codes"] = known(compared, report.comparison.codes());
  return json;
}

/// Returns which answers are right as hexadecimal digits, the first image in the highest bit of the first digit, so
/// that any two runs can be compared image by image.
std::string hexadecimal(const std::vector<bool>& bits) {
  std::string digits;
  for (size_t first = 0; first < bits.size(); first += 4) {
    unsigned digit = 0;
    for (size_t i = first; i < first + 4; ++i) digit = 2 * digit + (i < bits.size() && bits[i]);
    digits += "0123456789abcdef"[digit];
  }
  return digits;
}

Json row_json(const Row& row) {
  const Evaluation& e = row.evaluation;
  Json json;
  json["name"] = e.name;
  json["images"] = e.images;
  json["top1"] = e.top1;
  json["top5"] = e.top5;
  json["mean_iou"] = known(e.task.pixels(), e.mean_iou);
  const bool boxes = e.task.labels == Labels::boxes;
  json["ap"] = known(boxes, e.ap);
  json["ap50"] = known(boxes, e.ap50);
  AveragePrecision ap;
  if (!e.boxes.empty()) ap = average_precision(e.boxes, static_cast<int>(e.task.classes()));
  const auto measured = [&](double share) { return known(!e.boxes.empty() && !std::isnan(share), share); };
  json["ap75"] = measured(ap.ap75);
  json["ap_small"] = measured(ap.ap_of_size[0]);
  json["ap_medium"] = measured(ap.ap_of_size[1]);
  json["ap_large"] = measured(ap.ap_of_size[2]);
  json["loss"] = e.loss;
  json["bytes"] = known(row.bytes > 0, row.bytes);
  json["images_per_second"] = known(e.images_per_second > 0, e.images_per_second);
  json["latency_median_ms"] = known(e.latency_runs > 0, e.latency_median_ms);
  json["latency_p99_ms"] = known(e.latency_runs > 0, e.latency_p99_ms);
  json["latency_runs"] = e.latency_runs;
  json["differing_predictions"] = known(row.differing >= 0, row.differing);
  json["right"] = known(e.task.labels == Labels::image && !e.right.empty(), hexadecimal(e.right));
  return json;
}

Json epoch_json(const EpochMetrics& m) {
  Json json;
  json["phase"] = m.phase;
  json["epoch"] = m.epoch;
  json["train_loss"] = m.train_loss;
  json["train_cross_entropy"] = m.train_cross_entropy;
  json["train_top1"] = m.train_top1;
  json["validation_loss"] = known(m.validation_loss);
  json["validation_top1"] = known(m.validation_top1);
  json["validation_mean_iou"] = known(m.validation_mean_iou);
  json["validation_ap"] = known(m.validation_ap);
  json["learning_rate"] = m.learning_rate;
  json["images_per_second"] = m.images_per_second;
  json["data_wait_share"] = m.data_wait_share;
  json["gpu_memory_bytes"] = m.gpu_memory_bytes;
  json["seconds"] = m.seconds;
  json["ranks"] = Json::array();
  for (const RankMetrics& rank : m.ranks) {
    json["ranks"].push_back({{"images_per_second", rank.images_per_second},
                             {"data_wait_share", rank.data_wait_share},
                             {"exchange_share", rank.exchange_share},
                             {"gpu_memory_bytes", rank.gpu_memory_bytes}});
  }
  return json;
}

Json histogram_json(const Histogram& h) {
  if (h.counts.empty()) return nullptr;
  return {{"lo", h.lo}, {"hi", h.hi}, {"counts", h.counts}, {"not_finite", h.not_finite}};
}

Json layer_json(const ReportLayer& layer) {
  const LayerStatistics& l = layer.statistics;
  Json json;
  json["name"] = l.name;
  json["op"] = l.op;
  const LayerKernel first = layer.kernels.empty() ? LayerKernel{} : layer.kernels.front();
  json["engine"] = first.engine;
  json["kernel"] = first.kernel;
  json["kernels"] = Json::array();
  for (const LayerKernel& k : layer.kernels) {
    json["kernels"].push_back({{"program", k.program}, {"engine", k.engine}, {"kernel", k.kernel}});
  }
  json["qparams"] = l.qparams;
  json["weight_codes"] = l.weight_codes;
  json["sqnr_db"] = known(std::isfinite(l.sqnr_db), l.sqnr_db);
  json["weight_sqnr_db"] = known(!l.weights.counts.empty() && std::isfinite(l.weight_sqnr_db), l.weight_sqnr_db);
  json["weights"] = histogram_json(l.weights);
  json["activations"] = histogram_json(l.activations);
  return json;
}

/// Returns the confusion matrix of the network that ships as a list of its cells that are not 0: with 1000 classes
/// nearly all of a million cells are.
Json confusion_json(const Report& report) {
  const Row* row = int8_row(report);
  if (!row) return nullptr;
  const auto& matrix = row->evaluation.confusion;
  const auto classes = static_cast<size_t>(std::lround(std::sqrt(static_cast<double>(matrix.size()))));
  Json counts = Json::array();
  for (size_t i = 0; i < matrix.size(); ++i) {
    if (matrix[i] > 0) counts.push_back({i / classes, i % classes, matrix[i]});
  }
  return {{"row", row->evaluation.name}, {"counts", std::move(counts)}};
}

Json comparison_json(const Comparison& c) {
  if (c.codes() == 0) return nullptr;
  Json layers = Json::array();
  for (const LayerDifference& l : c.layers) {
    layers.push_back({{"layer", l.layer},
                      {"is_logits", l.is_logits},
                      {"codes", l.codes},
                      {"differing", l.differing},
                      {"largest_lsb", l.largest_lsb}});
  }
  Json json;
  json["programs"] = c.programs;
  json["images"] = c.images;
  json["program_images"] = c.program_images;
  json["exact"] = c.exact;
  json["identical"] = known(c.promised() || c.broken(), c.identical());
  json["verdict"] = verdict(c);
  json["differing_predictions"] = c.differing_predictions;
  json["constants"] = known(c.constants.derived, c.constants.count());
  json["wrong_constants"] = known(c.constants.derived, c.constants.wrong);
  json["layers"] = std::move(layers);
  return json;
}

}  // namespace

std::string report_json(const Report& report) {
  Json json;
  json["format_version"] = kReportVersion;
  json["title"] = report.title;
  json["notes"] = report.notes;
  json["labels"] = name_in(kLabels, report.labels);
  json["model"] = report.model;
  json["multiply_adds"] = report.multiply_adds;
  json["headline"] = headline_json(report);
  json["rows"] = Json::array();
  for (const Row& row : report.rows) json["rows"].push_back(row_json(row));
  json["comparison"] = comparison_json(report.comparison);
  json["epochs"] = Json::array();
  for (const EpochMetrics& epoch : report.epochs) json["epochs"].push_back(epoch_json(epoch));
  json["layers"] = Json::array();
  for (const ReportLayer& layer : report.layers) json["layers"].push_back(layer_json(layer));
  json["class_names"] = report.class_names;
  json["confusion"] = confusion_json(report);
  json["recipe"] = report.recipe;
  json["recipe_hash"] = report.recipe_hash;
  json["seed"] = report.seed;
  json["command"] = report.command;
  json["machine"] = report.machine;
  json["versions"] = report.versions;
  json["seconds"] = report.seconds;
  // File names and command lines need not be UTF-8; what is not is replaced.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace octet
