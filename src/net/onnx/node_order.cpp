// SPDX-License-Identifier: Apache-2.0
// The order of an ONNX file's nodes. ONNX demands that a node stands behind those whose values it reads, but runtimes
// sort nodes themselves, and tools such as convert_float_to_float16 append theirs at the end.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/error.h"
#include "src/net/onnx/model_file.h"

namespace octet {
namespace {

constexpr int kNoNode = -1;

class Order {
 public:
  explicit Order(onnx::GraphProto& graph) : nodes_(*graph.mutable_node()), waits_for_(size(), 0), readers_(size()) {
    for (const onnx::TensorProto& weights : graph.initializer()) makers_.emplace(weights.name(), kNoNode);
    for (const onnx::ValueInfoProto& input : graph.input()) makers_.emplace(input.name(), kNoNode);
    for (int n = 0; n < nodes_.size(); ++n)  // of two nodes that give one name, which is refused later, the first
      for (const std::string& output : nodes_[n].output())
        if (!output.empty()) makers_.emplace(output, n);
    for (int n = 0; n < nodes_.size(); ++n)
      for (const std::string& input : nodes_[n].input()) {
        const int from = maker(input);
        if (from == kNoNode) continue;
        ++waits_for_[static_cast<size_t>(n)];
        readers_[static_cast<size_t>(from)].push_back(n);
        is_sorted_ = is_sorted_ && from < n;
      }
  }

  /// Sorts the nodes: of all that could come next, the one that is first in the file. Returns false if there is a
  /// cycle.
  bool sort() {
    if (is_sorted_) return true;
    std::set<int> ready;
    for (int n = 0; n < nodes_.size(); ++n)
      if (waits_for_[static_cast<size_t>(n)] == 0) ready.insert(n);
    std::vector<onnx::NodeProto*> sorted;
    while (!ready.empty()) {
      const int n = *ready.begin();
      ready.erase(ready.begin());
      sorted.push_back(nodes_.Mutable(n));
      for (const int reader : readers_[static_cast<size_t>(n)])
        if (--waits_for_[static_cast<size_t>(reader)] == 0) ready.insert(reader);
    }
    if (sorted.size() != size()) return false;
    std::copy(sorted.begin(), sorted.end(), nodes_.pointer_begin());
    return true;
  }

  /// Returns the nodes of a cycle after sort() found one, each before one whose value it reads.
  std::vector<std::string> cycle() const {
    const auto waits = [&](int n) { return n != kNoNode && waits_for_[static_cast<size_t>(n)] > 0; };
    int n = 0;
    while (!waits(n)) ++n;
    std::vector<int> path;
    std::set<int> seen;
    while (seen.insert(n).second) {
      path.push_back(n);
      for (const std::string& input : nodes_[n].input())  // a node that waits reads from one that waits
        if (const int from = maker(input); waits(from)) {
          n = from;
          break;
        }
    }
    std::vector<std::string> labels;
    for (auto at = std::find(path.begin(), path.end(), n); at != path.end(); ++at)
      labels.push_back(node_label(nodes_[*at]));
    return labels;
  }

 private:
  size_t size() const { return static_cast<size_t>(nodes_.size()); }

  int maker(const std::string& value) const {
    const auto found = makers_.find(value);
    return found == makers_.end() ? kNoNode : found->second;
  }

  google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes_;
  std::map<std::string_view, int> makers_;  ///< of each value, the node that gives it
  std::vector<int> waits_for_;              ///< of each node, how many inputs come from nodes that are not yet placed
  std::vector<std::vector<int>> readers_;   ///< of each node, the nodes that read what it gives
  bool is_sorted_ = true;
};

}  // namespace

std::string node_label(const onnx::NodeProto& node) {
  const std::string kind = shown_name(node.op_type());
  if (!node.name().empty()) return fmt::format("node '{}' ({})", shown_name(node.name()), kind);
  return fmt::format("node of output '{}' ({})", node.output_size() > 0 ? shown_name(node.output(0)) : "", kind);
}

void sort_nodes(const std::string& file, onnx::GraphProto& graph) {
  constexpr size_t kShown = 6;
  Order order(graph);
  if (order.sort()) return;
  std::vector<std::string> nodes = order.cycle();
  const size_t more = nodes.size() - std::min(nodes.size(), kShown);
  nodes.resize(nodes.size() - more);
  throw data_error(fmt::format(
      "{}: a cycle, in which each node reads what the next one gives and the last what the first gives: {}{}; no "
      "runtime can run this file: export the network again",
      file, fmt::join(nodes, ", "), more > 0 ? fmt::format(" and {} more", more) : ""));
}

}  // namespace octet
