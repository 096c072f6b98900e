// SPDX-License-Identifier: Apache-2.0
#include "src/engine/fusion.h"

#include <algorithm>

namespace octet {
namespace {

constexpr int kNone = -1;

// Returns for each node its only reader, if it is read once and is no output of the network; else kNone.
std::vector<int> only_readers(const Int8Graph& graph) {
  std::vector<int> reader(graph.nodes.size(), kNone), times(graph.nodes.size(), 0);
  for (int node = 0; node < static_cast<int>(graph.nodes.size()); ++node) {
    for (const int input : graph.nodes[node].inputs) reader[input] = node, ++times[input];
  }
  for (const int output : graph.outputs) ++times[output];
  for (size_t node = 0; node < reader.size(); ++node) {
    if (times[node] != 1) reader[node] = kNone;
  }
  return reader;
}

bool is_pointwise(const Int8Node& n) {
  return n.op == Int8Op::conv2d && n.window == Window{} && n.groups == 1 && !n.float_output;
}

bool is_depthwise_3x3(const Int8Node& n, const Int8Node& input) {
  const Window& w = n.window;
  return n.op == Int8Op::conv2d && n.inputs.size() == 1 && n.groups == input.shape.c && n.shape.c == input.shape.c &&
         w.stride_h <= 2 &&
         w == Window{.kernel_h = 3,
                     .kernel_w = 3,
                     .stride_h = w.stride_h,
                     .stride_w = w.stride_h,
                     .pad = even_padding(1, 1)};
}

// Each function below returns the nodes of the group of one kind that begins at `node`, or none.
std::vector<int> conv_max_pool_at(const Int8Graph& graph, const std::vector<int>& reader, int node) {
  const Int8Node& conv = graph.nodes[node];
  const int pool = reader[node];
  if (conv.op != Int8Op::conv2d || conv.inputs.size() != 1 || pool == kNone) return {};
  return graph.nodes[pool].op == Int8Op::max_pool ? std::vector{node, pool} : std::vector<int>{};
}

// A lookup of one table for all channels is merged into its convolution instead (merged_convolutions()).
std::vector<int> conv_lookup_at(const Int8Graph& graph, const std::vector<int>& reader, int node) {
  const Int8Node& conv = graph.nodes[node];
  const int lookup = reader[node];
  if (conv.op != Int8Op::conv2d || conv.inputs.size() != 1 || conv.float_output || lookup == kNone) return {};
  const Int8Node& next = graph.nodes[lookup];
  return next.op == Int8Op::lookup && next.groups > 1 ? std::vector{node, lookup} : std::vector<int>{};
}

// A depthwise convolution and the 1x1 convolution that reads it.
std::vector<int> depthwise_pointwise_at(const Int8Graph& graph, const std::vector<int>& reader, int node) {
  const Int8Node& depthwise = graph.nodes[node];
  if (depthwise.inputs.empty() || !is_depthwise_3x3(depthwise, graph.nodes[depthwise.inputs[0]])) return {};
  const int project = reader[node];
  if (project == kNone || !is_pointwise(graph.nodes[project]) || graph.nodes[project].inputs[0] != node) return {};
  return {node, project};
}

std::vector<int> inverted_residual_at(const Int8Graph& graph, const std::vector<int>& reader, int node) {
  const Int8Node& expand = graph.nodes[node];
  if (!is_pointwise(expand) || expand.inputs.size() != 1 || reader[node] == kNone) return {};
  std::vector<int> nodes = depthwise_pointwise_at(graph, reader, reader[node]);
  if (!nodes.empty()) nodes.insert(nodes.begin(), node);
  return nodes;
}

// The second node follows the first directly, so that no node between them needs the first one's output.
std::vector<int> expand_reduce_at(const Int8Graph& graph, int node) {
  const int last = node + 1;
  if (last == static_cast<int>(graph.nodes.size())) return {};
  const Int8Node &expand = graph.nodes[node], &reduce = graph.nodes[last];
  if (!is_pointwise(expand) || !is_pointwise(reduce) || reduce.inputs != std::vector{node}) return {};
  const bool widens = expand.shape.c > graph.nodes[expand.inputs[0]].shape.c;
  return widens && reduce.shape.c < expand.shape.c ? std::vector{node, last} : std::vector<int>{};
}

std::vector<int> pool_linear_at(const Int8Graph& graph, const std::vector<int>& reader, int node) {
  const Int8Node& pool = graph.nodes[node];
  if (pool.op != Int8Op::global_avg_pool || pool.float_output) return {};
  int linear = reader[node];
  if (linear != kNone && graph.nodes[linear].op == Int8Op::flatten) linear = reader[linear];
  if (linear == kNone || graph.nodes[linear].op != Int8Op::linear) return {};
  return {node, linear};
}

}  // namespace

std::vector<int> merged_convolutions(const Int8Graph& graph) {
  const std::vector<int> reader = only_readers(graph);
  std::vector<int> merged(graph.nodes.size(), kNone);
  for (int node = 0; node < static_cast<int>(graph.nodes.size()); ++node) {
    if (graph.nodes[node].op != Int8Op::lookup || graph.nodes[node].groups > 1) continue;
    const int before = graph.nodes[node].inputs[0];
    const Int8Op op = graph.nodes[before].op;
    if ((op == Int8Op::conv2d || op == Int8Op::linear) && reader[before] == node) merged[node] = before;
  }
  return merged;
}

std::string_view group_name(GroupKind kind) {
  constexpr std::string_view kNames[] = {"conv_lookup", "conv_max_pool", "inverted_residual", "expand_reduce",
                                         "pool_linear"};
  return kNames[static_cast<int>(kind)];
}

std::vector<NodeGroup> node_groups(const Int8Graph& graph) {
  const std::vector<int> reader = only_readers(graph);
  std::vector<bool> taken(graph.nodes.size());
  for (const int convolution : merged_convolutions(graph)) {
    if (convolution != kNone) taken[convolution] = true;
  }
  std::vector<NodeGroup> groups;
  const auto add = [&](GroupKind kind, const std::vector<int>& nodes) {
    if (nodes.empty() || std::any_of(nodes.begin(), nodes.end(), [&](int node) { return taken[node]; })) return;
    for (const int node : nodes) taken[node] = true;
    groups.push_back({kind, nodes});
  };
  for (int node = 0; node < static_cast<int>(graph.nodes.size()); ++node) {
    add(GroupKind::conv_lookup, conv_lookup_at(graph, reader, node));
    add(GroupKind::conv_max_pool, conv_max_pool_at(graph, reader, node));
    add(GroupKind::inverted_residual, inverted_residual_at(graph, reader, node));
    add(GroupKind::inverted_residual, depthwise_pointwise_at(graph, reader, node));
    add(GroupKind::expand_reduce, expand_reduce_at(graph, node));
    add(GroupKind::pool_linear, pool_linear_at(graph, reader, node));
  }
  return groups;
}

std::vector<int> computed_by(const Int8Graph& graph, const std::vector<std::string>& kernels) {
  std::vector<int> by(kernels.size());
  for (size_t node = 0; node < kernels.size(); ++node) {
    const bool follows = kernels[node] == "merged" || kernels[node] == "alias";
    by[node] = follows ? by[graph.nodes[node].inputs[0]] : static_cast<int>(node);
  }
  return by;
}

std::vector<LayerInfo> say_where_merged(const Int8Graph& graph, std::vector<LayerInfo> layers) {
  std::vector<std::string> kernels;
  for (const LayerInfo& layer : layers) kernels.push_back(layer.kernel);
  const std::vector<int> by = computed_by(graph, kernels);
  for (size_t node = 0; node < layers.size(); ++node)
    if (kernels[node] == "merged") layers[node].kernel += " into " + graph.nodes[by[node]].name;
  return layers;
}

}  // namespace octet
