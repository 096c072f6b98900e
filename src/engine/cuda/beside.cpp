// SPDX-License-Identifier: Apache-2.0
#include "src/engine/cuda/beside.h"

#include <algorithm>

namespace octet {
namespace {

bool overlap(const ByteRange& a, const ByteRange& b) {
  return a.first < b.first + b.count && b.first < a.first + a.count;
}

bool any_overlap(const std::vector<ByteRange>& a, const std::vector<ByteRange>& b) {
  return std::any_of(a.begin(), a.end(), [&](const ByteRange& of_a) {
    return std::any_of(b.begin(), b.end(), [&](const ByteRange& of_b) { return overlap(of_a, of_b); });
  });
}

}  // namespace

bool independent(const Traffic& a, const Traffic& b) {
  return !any_overlap(a.writes, b.writes) && !any_overlap(a.writes, b.reads) && !any_overlap(a.reads, b.writes);
}

Traffic traffic_of(const Int8Graph& graph, int node, const std::function<ByteRange(int node)>& output) {
  Traffic traffic{.reads = {}, .writes = {output(node)}};
  for (const int input : graph.nodes[node].inputs) traffic.reads.push_back(output(input));
  return traffic;
}

Traffic traffic_of(const Int8Graph& graph, const NodeGroup& group, const std::function<ByteRange(int node)>& output) {
  const int first = group.nodes.front(), last = group.nodes.back();
  Traffic traffic = traffic_of(graph, first, output);
  if (group.kind != GroupKind::expand_reduce) traffic.writes.clear();
  traffic.writes.push_back(output(last));
  const std::vector<int>& inputs = graph.nodes[last].inputs;  // after the first comes the residual
  for (size_t i = 1; i < inputs.size(); ++i) traffic.reads.push_back(output(inputs[i]));
  return traffic;
}

}  // namespace octet
