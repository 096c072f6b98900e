#include "trainers/loop/stages.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "src/common/error.h"
#include "src/graph/op_traits.h"

namespace octet {
namespace {

int node_named(const Graph& graph, const std::string& layer) {
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    if (graph.nodes[n].name == layer) return static_cast<int>(n);
  std::vector<std::string> some;
  const std::vector<int> cuts = cut_points(graph);
  for (size_t i = 0; i < cuts.size(); i += std::max<size_t>(1, cuts.size() / 8))
    some.push_back(graph.nodes[cuts[i]].name);
  throw usage_error(
      fmt::format("parallel.stages: the fused network has no layer '{}'; it may be cut behind {} and others: octet "
                  "inspect RECIPE --stages 2 proposes",
                  layer, fmt::join(some, ", ")));
}

/// Why the network cannot be cut there.
[[noreturn]] void refuse_cut(const Graph& graph, int node) {
  const std::vector<int> last = last_readers(graph);
  std::vector<std::string> crossing;
  for (int n = 0; n <= node; ++n)
    if (last[n] > node) crossing.push_back(graph.nodes[n].name);
  throw usage_error(
      fmt::format("parallel.stages: a cut behind '{}' would part {} ({}); only one value may go from a process to the "
                  "next: cut where blocks end",
                  graph.nodes[node].name, crossing.size() == 1 ? "an output of the network" : "several values",
                  fmt::join(crossing, ", ")));
}

}  // namespace

std::vector<GraphPart> stages_of(const Graph& graph, const std::vector<std::string>& layers) {
  const std::vector<int> cuts = cut_points(graph);
  std::vector<GraphPart> parts;
  int first = 0;
  for (const std::string& layer : layers) {
    const int node = node_named(graph, layer);
    if (!std::binary_search(cuts.begin(), cuts.end(), node)) refuse_cut(graph, node);
    if (node <= first)
      throw usage_error(fmt::format("parallel.stages: '{}' is not behind '{}'; name layers in the network's order",
                                    layer, graph.nodes[first].name));
    parts.push_back({.first = first, .last = node});
    first = node;
  }
  parts.push_back({.first = first, .last = graph.outputs.front()});
  return parts;
}

const GatherShares* batch_norm_of_micro_batches(at::Device device) {
  static const GatherShares kByItself = [](const at::Tensor& mine) { return mine.unsqueeze(0); };
  return device.is_cuda() ? &kByItself : nullptr;
}

BatchShare batch_share(const Ranks* ranks, const std::vector<std::string>& layers) {
  if (ranks == nullptr) return {};
  const int stages = static_cast<int>(layers.size()) + 1;
  return {ranks->rank() / stages, ranks->size() / stages};
}

Owners::Owners(const Graph& graph, const std::vector<GraphPart>& parts) {
  int64_t channels = 0;
  size_t part = 0;
  edges_ = channels_ = {0};
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (part + 1 < parts.size() && static_cast<int>(n) > parts[part].last) {
      ++part;
      edges_.push_back(static_cast<int64_t>(n));
      channels_.push_back(channels);
    }
    part_of_[node.name] = part;
    if (!node.batch_norm.empty()) part_of_[node.batch_norm] = part;
    if (has_weight(node.op)) channels += node.out_channels;
  }
  edges_.push_back(static_cast<int64_t>(graph.nodes.size()));
  channels_.push_back(channels);
}

void Owners::add(const std::string& name, const at::Tensor& tensor, Owned& owned) const {
  const at::Tensor plain = tensor.detach();
  const bool of_edges = name == "edges.scale" || name == "edges.offset" || name == "edges.alpha";
  if (!of_edges && name != "weights.scale") {
    owned.at(part_of_.at(name.substr(0, name.rfind('.')))).push_back(plain);
    return;
  }
  const std::vector<int64_t>& begin = of_edges ? edges_ : channels_;
  for (size_t part = 0; part + 1 < begin.size(); ++part)
    if (begin[part + 1] > begin[part])
      owned.at(part).push_back(plain.narrow(0, begin[part], begin[part + 1] - begin[part]));
}

void take_from_owners(Ranks& ranks, const Owned& owned) {
  const c10::NoGradGuard no_grad;
  for (size_t rank = 0; rank < owned.size(); ++rank)
    if (!owned[rank].empty()) ranks.copy_from(static_cast<int>(rank), owned[rank]);
}

}  // namespace octet
