#include "src/engine/fusion.h"

namespace octet {

std::vector<int> merged_convolutions(const Int8Graph& graph) {
  std::vector<int> readers(graph.nodes.size(), 0);
  for (const Int8Node& node : graph.nodes) {
    for (const int input : node.inputs) ++readers[input];
  }
  for (const int output : graph.outputs) ++readers[output];
  std::vector<int> merged(graph.nodes.size(), -1);
  for (size_t node = 0; node < graph.nodes.size(); ++node) {
    if (graph.nodes[node].op != Int8Op::lookup) continue;
    const int before = graph.nodes[node].inputs[0];
    const Int8Op op = graph.nodes[before].op;
    if ((op == Int8Op::conv2d || op == Int8Op::linear) && readers[before] == 1) merged[node] = before;
  }
  return merged;
}

}  // namespace octet
