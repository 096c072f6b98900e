// SPDX-License-Identifier: Apache-2.0
// What a network from a file calls its outputs: as the file does, in every form in which it is written again.
#include <algorithm>
#include <string>
#include <vector>

#include "src/base/text.h"
#include "src/net/onnx/import.h"
#include "src/net/onnx/network.h"

namespace octet {
namespace {

/// Returns the names that the outputs get: those given, but for one that another node has, or that is no text.
template <typename AnyGraph>
std::vector<std::string> usable_names(const AnyGraph& graph, const std::vector<std::string>& names) {
  std::vector<std::string> usable;
  for (size_t o = 0; o < graph.outputs.size(); ++o) {
    const std::string& name = names.at(o);
    const std::string& own = graph.nodes[static_cast<size_t>(graph.outputs[o])].name;
    const bool taken = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                                   [&](const auto& node) { return node.name == name && name != own; });
    usable.push_back(taken || name.empty() || printable(name) != name ? own : name);
  }
  return usable;
}

}  // namespace

std::vector<std::string> output_names(const OnnxFile& file) {
  std::vector<std::string> names;
  for (const onnx::ValueInfoProto& output : file.model->graph().output()) names.push_back(output.name());
  return names;
}

void name_outputs(Int8Graph& graph, const std::vector<std::string>& names) {
  const std::vector<std::string> usable = usable_names(graph, names);
  for (size_t o = 0; o < usable.size(); ++o) graph.nodes[static_cast<size_t>(graph.outputs[o])].name = usable[o];
  graph.own_names = true;
}

std::vector<std::string> names_of_outputs(const Graph& graph) { return usable_names(graph, graph.file_outputs); }

}  // namespace octet
