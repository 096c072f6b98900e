// SPDX-License-Identifier: Apache-2.0
// Brings the nodes of an ONNX file into the form that is imported: in order, and QDQ in the place of QOperator form.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/net/onnx/network.h"

namespace octet {

// The order of the nodes. ONNX demands that a node stands behind those whose values it reads, but runtimes sort nodes
// themselves, and tools such as convert_float_to_float16 append theirs at the end.
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

// Quantized networks in QOperator form, whose operators read and give codes (QLinearConv). Each becomes what it is
// defined as, DequantizeLinear, the operator of reals and QuantizeLinear, so that one importer reads both forms.
namespace {

using onnx::NodeProto;
using onnx::TensorProto;

/// The names of a scale and a zero point.
struct Codes {
  std::string scale, zero;
};

/// Where the operator of reals has its inputs among those of the operator of codes: each is followed by its scale and
/// zero point.
struct Form {
  std::string_view op;  ///< of reals
  std::vector<int> in;  ///< inputs that are codes; of a Concat the first of all
  int out;              ///< the output's scale
  int bias = -1;        ///< int32 biases
};

/// The forms of ONNX and of ONNX Runtime's quantizer (com.microsoft).
const std::map<std::string_view, Form>& forms() {
  static const std::map<std::string_view, Form> kForms = {
      {"QLinearConv", {"Conv", {0, 3}, 6, 8}},
      {"QLinearMatMul", {"MatMul", {0, 3}, 6}},
      {"QGemm", {"Gemm", {0, 3}, 7, 6}},
      {"QLinearAdd", {"Add", {0, 3}, 6}},
      {"QLinearMul", {"Mul", {0, 3}, 6}},
      {"QLinearSigmoid", {"Sigmoid", {0}, 3}},
      {"QLinearLeakyRelu", {"LeakyRelu", {0}, 3}},
      {"QLinearAveragePool", {"AveragePool", {0}, 3}},
      {"QLinearGlobalAveragePool", {"GlobalAveragePool", {0}, 3}},
      {"QLinearReduceMean", {"ReduceMean", {0}, 3}},
      {"QLinearConcat", {"Concat", {2}, 0}},
  };
  return kForms;
}

/// Operators that copy codes in both forms.
bool copies(const std::string& op) {
  static const std::set<std::string_view> kCopies = {"DepthToSpace", "Flatten",   "Identity", "MaxPool",
                                                     "Reshape",      "Resize",    "Slice",    "Split",
                                                     "Squeeze",      "Transpose", "Unsqueeze"};
  return kCopies.contains(op);
}

class Expander {
 public:
  Expander(onnx::GraphProto& graph, const std::string& file) : graph_(graph), file_(file) {
    for (const TensorProto& tensor : graph_.initializer()) constants_.emplace(tensor.name(), &tensor);
  }

  void run() {
    for (const NodeProto& node : graph_.node()) {
      if (const auto form = forms().find(node.op_type()); form != forms().end()) {
        expand(node, form->second);
      } else if (copies(node.op_type()) && node.input_size() > 0 && codes_.contains(node.input(0))) {
        NodeProto copy = node;
        copy.set_input(0, dequantized(node.input(0), codes_.at(node.input(0))));
        add(std::move(copy), std::vector<Codes>(static_cast<size_t>(node.output_size()), codes_.at(node.input(0))));
      } else {
        if (node.op_type() == "QuantizeLinear" && node.input_size() > 1 && node.output_size() > 0)
          codes_[node.output(0)] = {node.input(1), node.input_size() > 2 ? node.input(2) : ""};
        made_.push_back(node);
      }
    }
    graph_.clear_node();
    for (NodeProto& node : made_) *graph_.add_node() = std::move(node);
  }

 private:
  [[noreturn]] void fail(const NodeProto& node, const std::string& what) const {
    throw data_error(fmt::format("{}: node of output '{}' ({}): {}: {}", file_,
                                 node.output_size() > 0 ? shown_name(node.output(0)) : "", shown_name(node.op_type()),
                                 what, kQuantizeByOnnxRuntime));
  }

  static std::string input(const NodeProto& node, int i) { return i < node.input_size() ? node.input(i) : ""; }
  static Codes codes(const NodeProto& node, int i) { return {input(node, i), input(node, i + 1)}; }

  NodeProto& append(const std::string& op, const std::vector<std::string>& inputs, const std::string& output) {
    NodeProto& node = made_.emplace_back();
    node.set_op_type(op);
    for (const std::string& name : inputs) node.add_input(name);
    node.add_output(output);
    return node;
  }

  /// Appends a DequantizeLinear of codes `name`; returns its output.
  std::string dequantized(const std::string& name, const Codes& codes, int64_t axis = 1) {
    const std::string output = fmt::format("/reals/{}", made_.size());  // short, however long the file's names are
    onnx::AttributeProto& attribute =
        *append("DequantizeLinear", {name, codes.scale, codes.zero}, output).add_attribute();
    attribute.set_name("axis");
    attribute.set_type(onnx::AttributeProto::INT);
    attribute.set_i(axis);
    return output;
  }

  /// Appends a node that gives reals, and for each of its outputs a QuantizeLinear under the output's name; an output
  /// without a scale is of reals.
  void add(NodeProto node, const std::vector<Codes>& outputs) {
    std::vector<std::pair<std::string, Codes>> given;
    for (size_t i = 0; i < outputs.size(); ++i) {
      std::string& name = *node.mutable_output(static_cast<int>(i));
      if (name.empty() || outputs[i].scale.empty()) continue;
      given.emplace_back(name, outputs[i]);
      name += "/reals";
    }
    made_.push_back(std::move(node));
    for (const auto& [name, codes] : given) {
      append("QuantizeLinear", {name + "/reals", codes.scale, codes.zero}, name);
      codes_[name] = codes;
    }
  }

  void expand(const NodeProto& from, const Form& form) {
    if (from.output_size() != 1 || from.output(0).empty()) fail(from, "expected one output");
    NodeProto node = from;
    node.set_op_type(std::string(form.op));
    if (node.name().empty()) node.set_name(from.output(0));
    node.clear_domain();
    node.clear_input();
    node.clear_attribute();
    for (const onnx::AttributeProto& given : from.attribute())
      if (given.name() != "channels_last" || given.i() != 0) *node.add_attribute() = given;
    std::vector<int> in = form.in;
    for (int i = in.back() + 3; form.op == "Concat" && i < from.input_size(); i += 3) in.push_back(i);
    const bool transposed = std::any_of(from.attribute().begin(), from.attribute().end(),
                                        [](const auto& a) { return a.name() == "transB" && a.i() != 0; });
    for (size_t i = 0; i < in.size(); ++i) {
      const int64_t outputs = form.op == "Conv" || transposed ? 0 : 1;  // the axis of weights' scales
      node.add_input(dequantized(input(from, in[i]), codes(from, in[i] + 1), outputs));
    }
    if (form.bias >= 0 && !input(from, form.bias).empty()) {
      const std::string scale = fmt::format("/scale/{}", made_.size());
      product(from, input(from, 1), input(from, 4), scale);
      node.add_input(dequantized(input(from, form.bias), {scale, ""}, 0));
    }
    add(std::move(node), {codes(from, form.out)});
  }

  /// Makes the scales of int32 biases, those of the input times those of the weights.
  void product(const NodeProto& node, const std::string& a, const std::string& b, const std::string& name) {
    const std::vector<float> left = reals(node, a), right = reals(node, b);
    if (left.size() != 1) fail(node, "has several scales of its input; expected one");
    TensorProto& scale = *graph_.add_initializer();  // within the file's budget of memory
    scale.set_name(name);
    scale.set_data_type(TensorProto::FLOAT);
    if (right.size() != 1) scale.add_dims(static_cast<int64_t>(right.size()));
    for (const float factor : right) scale.add_float_data(left[0] * factor);
  }

  std::vector<float> reals(const NodeProto& node, const std::string& name) const {
    const auto found = constants_.find(name);
    if (found == constants_.end() || found->second->data_type() != TensorProto::FLOAT)
      fail(node, fmt::format("its scale '{}' is no float32 initializer", shown_name(name)));
    const TensorProto& tensor = *found->second;
    std::vector<float> values(tensor.float_data().begin(), tensor.float_data().end());
    if (values.empty()) {
      values.resize(tensor.raw_data().size() / sizeof(float));
      std::memcpy(values.data(), tensor.raw_data().data(), values.size() * sizeof(float));
    }
    if (values.empty()) fail(node, fmt::format("its scale '{}' is empty", shown_name(name)));
    return values;
  }

  onnx::GraphProto& graph_;
  const std::string& file_;
  std::map<std::string, const TensorProto*> constants_;
  std::map<std::string, Codes> codes_;  ///< by the names of activations that are codes
  std::vector<NodeProto> made_;
};

}  // namespace

void expand_qoperators(onnx::GraphProto& graph, const std::string& file) {
  const auto is_form = [](const NodeProto& node) { return forms().contains(node.op_type()); };
  if (std::any_of(graph.node().begin(), graph.node().end(), is_form)) Expander(graph, file).run();
}

}  // namespace octet
