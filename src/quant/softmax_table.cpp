#include "src/quant/softmax_table.h"

#include <cmath>

#include "src/graph/int8_graph.h"

namespace octet {

std::vector<int32_t> softmax_table(const QParams& x) {
  std::vector<int32_t> table(256);
  for (int d = 0; d < 256; ++d)
    table[static_cast<size_t>(d)] =
        static_cast<int32_t>(std::rint(std::exp(-d * static_cast<double>(x.scale)) * kExponentialOne));
  return table;
}

}  // namespace octet
