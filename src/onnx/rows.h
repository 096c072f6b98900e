// octet's linear layers give [C, 1, 1], ONNX's Gemm [N, C]: where such a row meets a picture, it becomes one of a
// pixel.
#pragma once

#include <algorithm>
#include <vector>

#include "src/graph/op_traits.h"

namespace octet {

/// Of each node, whether its value is [N, C] in ONNX.
template <typename AnyGraph>
std::vector<bool> find_rows(const AnyGraph& graph) {
  std::vector<bool> rows;
  for (const auto& node : graph.nodes) {
    const OpTraits& op = traits(node.op);
    const bool picture = op.op == Op::input || op.op == Op::conv2d || op.windowed || op.op == Op::global_avg_pool ||
                         op.op == Op::matmul || op.op == Op::softmax;
    const bool from_rows = std::all_of(node.inputs.begin(), node.inputs.end(),
                                       [&](int input) { return rows[static_cast<size_t>(input)]; });
    rows.push_back(op.op == Op::linear || op.op == Op::flatten || (!picture && from_rows));
  }
  return rows;
}

}  // namespace octet
