// SPDX-License-Identifier: Apache-2.0
// A graph that a recipe writes in model.graph.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "src/base/error.h"
#include "src/base/names.h"
#include "src/net/shapes.h"
#include "src/net/zoo.h"

namespace octet::zoo {
namespace {

/// The attributes that an operator takes.
struct Attributes {
  std::vector<std::string_view> required, optional;
};

Attributes attributes_of(const Node& node) {
  switch (node.op) {
    case Op::conv2d:
      return {{"out_channels", "kernel"},
              {"stride", "pad", "pad_top", "pad_left", "pad_bottom", "pad_right", "dilation", "groups", "bias"}};
    case Op::linear:
      return {{"out_channels"}, {"bias"}};
    case Op::max_pool:
    case Op::avg_pool:
      return {{"kernel"}, {"stride", "pad", "pad_top", "pad_left", "pad_bottom", "pad_right"}};
    case Op::subsample_pad:
      return {{"out_channels", "stride"}, {}};
    case Op::batch_norm:
      return {{}, {"epsilon"}};
    case Op::dropout:
      return {{"dropout"}, {}};
    case Op::slice:
      return {{"first_channel", "out_channels"}, {}};
    case Op::channel_shuffle:
      return {{"groups"}, {}};
    case Op::matmul:
      return {{}, {"groups", "transposed", "scale"}};
    case Op::softmax:
    case Op::prelu:
      return {{}, {"groups"}};
    case Op::resize:
    case Op::depth_to_space:
    case Op::resize_bilinear:
      return {{"factor"}, {}};
    case Op::lookup:
      return node.function.kind == FunctionKind::leaky_relu ? Attributes{{}, {"slope"}} : Attributes{};
    default:
      return {{}, {}};
  }
}

/// Whether model.graph may name the operator. A lookup is written by the name of its function.
bool is_written(Op op) { return op != Op::input && op != Op::requantize && op != Op::lookup; }

/// Reads one NodeSpec; errors name the node.
class SpecReader {
 public:
  SpecReader(const NodeSpec& spec, std::string name) : spec_(spec), name_(std::move(name)) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw usage_error(fmt::format("model.graph: node '{}': {}", name_, what));
  }

  Op op() const {
    if (find_function(spec_.op)) return Op::lookup;
    const Op op = named();
    if (op == Op::input) fail("the input node is made for you; refer to it as 'input'");
    if (op == Op::lookup) {
      fail(fmt::format("a lookup is made from a function; write one of {}", fmt::join(names_in(kFunctions), ", ")));
    }
    if (!is_written(op)) fail(fmt::format("a {} is made by quant.residual_bits, not written", op_name(op)));
    return op;
  }

  Function function() const {
    return {find_function(spec_.op).value_or(FunctionKind{}), static_cast<float>(number("slope", kLeakySlope))};
  }

  void check_attributes(const Node& node) const {
    const Attributes known = attributes_of(node);
    std::vector<std::string_view> all = known.required;
    all.insert(all.end(), known.optional.begin(), known.optional.end());
    for (const auto& [key, value] : spec_.attributes) {
      if (std::find(all.begin(), all.end(), key) != all.end()) continue;
      fail(fmt::format("{} has no attribute '{}'{}; allowed: {}", spec_.op, key, did_you_mean(key, all),
                       all.empty() ? "none" : fmt::format("{}", fmt::join(all, ", "))));
    }
    for (const std::string_view key : known.required) {
      if (!spec_.attributes.contains(std::string(key))) fail(fmt::format("{} needs '{}'", spec_.op, key));
    }
  }

  double number(const std::string& key, double fallback) const {
    const auto found = spec_.attributes.find(key);
    return found == spec_.attributes.end() ? fallback : found->second;
  }

  int integer(const std::string& key, int fallback) const {
    const double value = number(key, fallback);
    if (!(value >= 0 && value <= kMaxDimension) || value != std::floor(value)) {
      fail(fmt::format("{} = {} is not an integer in 0..{}", key, value, kMaxDimension));
    }
    return static_cast<int>(value);
  }

  bool flag(const std::string& key, bool fallback) const {
    const int value = integer(key, fallback ? 1 : 0);
    if (value > 1) fail(fmt::format("{} = {} is neither true nor false", key, value));
    return value == 1;
  }

 private:
  Op named() const {
    try {
      return op_from_name(spec_.op);
    } catch (const Error& error) {
      fail(error.what());
    }
  }

  const NodeSpec& spec_;
  const std::string name_;
};

Window read_window(const SpecReader& reader, Op op) {
  const bool pool = op == Op::max_pool || op == Op::avg_pool;
  const int kernel = reader.integer("kernel", 1);
  const int pad = reader.integer("pad", 0);
  Window window = square(kernel, reader.integer("stride", pool ? kernel : 1), pad);
  window.pad = {reader.integer("pad_top", pad), reader.integer("pad_left", pad), reader.integer("pad_bottom", pad),
                reader.integer("pad_right", pad)};
  window.dilation_h = window.dilation_w = reader.integer("dilation", 1);
  return window;
}

std::vector<int> read_outputs(const ModelSpec& spec, const std::map<std::string, int>& index_of) {
  std::vector<int> outputs;
  for (const std::string& name : spec.outputs) {
    const auto found = index_of.find(name);
    if (found == index_of.end()) {
      std::vector<std::string_view> names;
      for (const auto& [known, index] : index_of) names.push_back(known);
      throw usage_error(
          fmt::format("model.outputs: '{}' is no node of model.graph{}", name, did_you_mean(name, names)));
    }
    outputs.push_back(found->second);
  }
  return outputs;
}

}  // namespace

Graph custom(const ModelSpec& spec) {
  if (spec.graph.empty()) throw usage_error("model: name 'graph' needs the nodes in model.graph");
  Graph graph;
  graph.name = "graph";
  graph.nodes.push_back({.name = "input", .op = Op::input, .shape = spec.input});
  std::map<std::string, int> index_of = {{"input", 0}};
  for (const NodeSpec& node_spec : spec.graph) {
    const int index = static_cast<int>(graph.nodes.size());
    const std::string name = node_spec.name.empty() ? fmt::format("{}_{}", node_spec.op, index) : node_spec.name;
    const SpecReader reader(node_spec, name);
    Node node{.name = name, .op = reader.op(), .function = reader.function()};
    reader.check_attributes(node);
    for (const std::string& input : node_spec.inputs) {
      const auto found = index_of.find(input);
      if (found == index_of.end()) reader.fail(fmt::format("input '{}' is no earlier node", input));
      node.inputs.push_back(found->second);
    }
    if (node_spec.inputs.empty()) node.inputs.push_back(index - 1);
    node.window = read_window(reader, node.op);
    node.out_channels = reader.integer("out_channels", 0);
    node.first_channel = reader.integer("first_channel", 0);
    node.factor_h = node.factor_w = reader.integer("factor", 1);
    node.groups = reader.integer("groups", 1);
    node.transposed = reader.flag("transposed", false);
    node.scale = static_cast<float>(reader.number("scale", 1));
    node.bias = reader.flag("bias", has_weight(node.op));
    node.dropout = static_cast<float>(reader.number("dropout", 0));
    node.epsilon = reader.number("epsilon", kBatchNormEpsilon);
    if (node.op == Op::conv2d && node.inputs.size() != 1) reader.fail("conv2d has one input");
    index_of.emplace(name, index);
    graph.nodes.push_back(std::move(node));
  }
  graph.outputs = read_outputs(spec, index_of);
  infer_shapes(graph);
  const Node& last = graph.nodes.back();
  if (spec.outputs.empty() && last.shape != Shape{spec.classes, 1, 1}) {
    throw usage_error(fmt::format("model.graph: the last node '{}' gives {}, the data has {} classes", last.name,
                                  to_string(last.shape), spec.classes));
  }
  return graph;
}

}  // namespace octet::zoo

namespace octet {

const std::vector<std::string_view>& written_ops() {
  static const std::vector<std::string_view> kNames = [] {
    std::vector<std::string_view> names;
    for (const Op op : all_ops()) {
      if (zoo::is_written(op)) names.push_back(op_name(op));
    }
    for (const std::string_view function : names_in(kFunctions)) names.push_back(function);
    return names;
  }();
  return kNames;
}

}  // namespace octet
