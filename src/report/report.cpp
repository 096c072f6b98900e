#include "src/report/report.h"

#include <algorithm>

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

}  // namespace octet
