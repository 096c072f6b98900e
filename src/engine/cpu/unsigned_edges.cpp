#include "src/engine/cpu/unsigned_edges.h"

namespace octet {

Int8Graph with_unsigned_edges(Int8Graph graph) {
  for (Int8Node& node : graph.nodes) {
    if (!node.out.is_signed()) continue;
    node.out.zero_point += kSignedShift;
    node.out.quant_min += kSignedShift;
    node.out.quant_max += kSignedShift;
    node.clamp_min += kSignedShift;
    node.clamp_max += kSignedShift;
  }
  return graph;
}

}  // namespace octet
