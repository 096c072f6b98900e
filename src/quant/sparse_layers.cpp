#include "src/quant/sparse_layers.h"

#include <fmt/format.h>

#include <algorithm>

namespace octet {

WeightRows weight_rows(const Graph& graph, int n) {
  const Node& node = graph.nodes[n];
  if (node.op == Op::conv2d)
    return {graph.nodes[node.inputs[0]].shape.c / node.groups,
            static_cast<long>(node.window.kernel_h) * node.window.kernel_w};
  int from = node.inputs[0];
  while (graph.nodes[from].op == Op::flatten) from = graph.nodes[from].inputs[0];
  const Shape& image = graph.nodes[from].shape;
  return {image.c, static_cast<long>(image.h) * image.w};
}

std::vector<std::string> dense_reasons(const Graph& fused) {
  std::vector<std::string> reasons(fused.nodes.size());
  std::vector<bool> is_picture(fused.nodes.size());  // what no weight has changed yet
  for (int n = 0; n < static_cast<int>(fused.nodes.size()); ++n) {
    const Node& node = fused.nodes[n];
    if (!has_weight(node.op)) {
      is_picture[n] = std::all_of(node.inputs.begin(), node.inputs.end(), [&](int input) { return is_picture[input]; });
      continue;
    }
    const long inputs = weight_rows(fused, n).inputs;
    if (is_picture[node.inputs[0]]) {
      reasons[n] = "reads the picture";
    } else if (inputs == 1) {
      reasons[n] = "depthwise";
    } else if (inputs % 4 != 0) {
      reasons[n] = fmt::format("{} input channels, no multiple of four", inputs);
    }
  }
  return reasons;
}

}  // namespace octet
