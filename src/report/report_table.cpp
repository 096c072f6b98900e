// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "src/base/text.h"
#include "src/report/headline.h"
#include "src/report/report.h"

namespace octet {

void count_differing(std::vector<Row>& rows) {
  const auto graph =
      std::find_if(rows.begin(), rows.end(), [](const Row& row) { return row.evaluation.name == "qat_graph"; });
  if (graph == rows.end()) return;
  for (Row& row : rows) {
    if (&row != &*graph) row.differing = differing_predictions(row.evaluation, graph->evaluation);
  }
}

void add_kernels(std::vector<ReportLayer>& layers, const std::string& program, const std::vector<LayerInfo>& infos) {
  for (ReportLayer& layer : layers) {
    for (const LayerInfo& info : infos) {
      if (info.name == layer.statistics.name)
        layer.kernels.push_back({program, info.engine.empty() ? program : info.engine, info.kernel});
    }
  }
}

namespace {

std::string or_dash(bool known, std::string text) { return known ? std::move(text) : "-"; }

}  // namespace

std::string report_table(const Report& report) {
  const ScoreNames& names = score_names(report.labels);
  TextTable table({{"network", Align::left},
                   {names.score},
                   {names.second},
                   {"loss"},
                   {"bytes"},
                   {"images/s"},
                   {"median"},
                   {"p99"},
                   {"differing"}});
  for (const Row& row : report.rows) {
    const Evaluation& e = row.evaluation;
    table.add_row({e.name, percent(e.score()), percent(e.second()), fmt::format("{:.4f}", e.loss),
                   or_dash(row.bytes > 0, human_bytes(static_cast<double>(row.bytes))),
                   or_dash(e.images_per_second > 0, decimal(e.images_per_second)),
                   or_dash(e.latency_runs > 0, human_seconds(e.latency_median_ms / 1e3)),
                   or_dash(e.latency_runs > 0, human_seconds(e.latency_p99_ms / 1e3)),
                   or_dash(row.differing >= 0, with_thousands(row.differing))});
  }
  std::string text = table.render() + "\n";
  text += fmt::format("{}, {} multiply-adds an image", report.model,
                      human_count(static_cast<double>(report.multiply_adds)));
  if (!report.rows.empty()) text += ", " + counted(report.rows.front().evaluation.images, "test image");
  text += shorter_rows(report);
  text += "; median and p99: latency of one image; differing: predictions other than the QAT graph's\n";
  for (const std::string& sentence : accuracy_sentences(headline(report))) text += sentence + "\n";
  for (const std::string& note : report.notes) text += "note: " + note + "\n";
  return text;
}

}  // namespace octet
