#include "src/eval/report.h"

namespace octet {

void add_kernels(std::vector<LayerStatistics>& layers, const std::string& program,
                 const std::vector<LayerInfo>& infos) {
  for (LayerStatistics& layer : layers) {
    for (const LayerInfo& info : infos) {
      if (info.name == layer.name)
        layer.kernels.push_back({program, info.engine.empty() ? program : info.engine, info.kernel});
    }
  }
}

}  // namespace octet
