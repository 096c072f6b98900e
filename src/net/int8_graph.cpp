// SPDX-License-Identifier: Apache-2.0
#include "src/net/int8_graph.h"

#include <fmt/format.h>

#include <bit>

#include "src/base/error.h"
#include "src/net/op_traits.h"
#include "src/net/shapes.h"

namespace octet {

bool is_classifier(const Int8Graph& graph) {
  if (graph.outputs.size() != 1) return false;
  const Int8Node& output = graph.nodes[static_cast<size_t>(graph.outputs[0])];
  return output.float_output && output.shape.h == 1 && output.shape.w == 1;
}

int Int8Graph::classes() const {
  if (is_classifier(*this)) return nodes[static_cast<size_t>(outputs[0])].shape.c;
  throw usage_error(
      fmt::format("{} gives {}; a classifier gives one output, float32 [classes, 1, 1]", name, outputs_text(*this)));
}

long multiply_adds(const Int8Graph& graph) {
  long total = 0;
  for (const Int8Node& node : graph.nodes) {
    if (node.op == Int8Op::matmul)
      total += node.shape.elements() * (graph.nodes[static_cast<size_t>(node.inputs[0])].shape.c / node.groups);
    if (!has_weight(node.op)) continue;
    // Every output channel owns weight.size() / K weights, each used once for every output pixel.
    total += static_cast<long>(node.weight.size()) * node.shape.h * node.shape.w;
  }
  return total;
}

std::string code_type(const QParams& q) {
  return (q.is_signed() ? "s" : "u") + std::to_string(std::bit_width(static_cast<unsigned>(q.quant_max - q.quant_min)));
}

std::vector<uint8_t> input_table(const Int8Graph& graph, int channel) {
  const auto c = static_cast<size_t>(channel);
  const float mean = graph.preprocessing.mean.at(c);
  const float std = graph.preprocessing.std.at(c);
  const QParams& out = graph.nodes.front().out;
  std::vector<uint8_t> table(256);
  for (size_t pixel = 0; pixel < table.size(); ++pixel) {
    table[pixel] = static_cast<uint8_t>(quantize(normalize_pixel(static_cast<uint8_t>(pixel), mean, std), out));
  }
  return table;
}

}  // namespace octet
