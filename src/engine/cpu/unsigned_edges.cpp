#include "src/engine/cpu/unsigned_edges.h"

#include <utility>

namespace octet {
namespace {

/// A table by shifted codes, of shifted codes.
void shift_table(Int8Node& node, bool x_signed) {
  std::vector<uint8_t> shifted(node.table.size());
  for (size_t i = 0; i < shifted.size(); ++i) {
    shifted[x_signed ? i ^ kSignedShift : i] =
        static_cast<uint8_t>(node.out.is_signed() ? node.table[i] ^ kSignedShift : node.table[i]);
  }
  node.table = std::move(shifted);
}

}  // namespace

Int8Graph with_unsigned_edges(Int8Graph graph) {
  for (Int8Node& node : graph.nodes) {
    if (node.op == Int8Op::lookup) shift_table(node, graph.nodes[node.inputs[0]].out.is_signed());
  }
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
