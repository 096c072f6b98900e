// SPDX-License-Identifier: Apache-2.0
#include "src/net/onnx/network.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/net/shapes.h"

namespace octet {
namespace {

bool is_text(const std::string& name) {
  for (size_t at = 0; at < name.size();) {
    const size_t length = utf8_length(std::string_view(name).substr(at));
    if (length == 0 || static_cast<unsigned char>(name[at]) < ' ') return false;
    at += length;
  }
  return !name.empty();
}

/// Drops the parameters of nodes that are not in the graph.
void keep_parameters(const Graph& graph, TensorFile& weights) {
  TensorFile kept;
  for (const ParameterSpec& spec : parameters(graph)) kept.tensors.insert(weights.tensors.extract(spec.name));
  weights = std::move(kept);
}

}  // namespace

OnnxValue Network::append(Node node, const std::vector<std::string>& names, int rank) {
  Graph& graph = result_.graph;
  if (graph.nodes.size() >= static_cast<size_t>(kMaxNodes))
    throw usage_error(fmt::format("more than {} nodes", kMaxNodes));
  for (const std::string& name : names) {
    if (!is_text(name) || !names_.insert(name).second) continue;
    node.name = name;
    const int index = static_cast<int>(graph.nodes.size());
    infer_shape(graph, node, index);
    graph.nodes.push_back(std::move(node));
    return {.node = index, .rank = rank, .direct = true};
  }
  throw usage_error("neither its name nor its output's is text that no other node has");
}

std::vector<int64_t> Network::dims(const OnnxValue& value, int64_t images) const {
  const Shape& s = shape(value);
  if (value.rank == 2) return {images, s.c};
  if (value.rank == 3) return {images, s.c, s.w};
  return value.channels_last ? std::vector<int64_t>{images, s.h, s.w, s.c}
                             : std::vector<int64_t>{images, s.c, s.h, s.w};
}

void Network::note(const std::string& text) {
  std::vector<std::string>& notes = result_.notes;
  if (std::find(notes.begin(), notes.end(), text) == notes.end()) notes.push_back(text);
}

void Network::check_room(size_t bytes) const {
  size_t read = file_.size;
  for (const auto& [path, size] : file_.external) read += size;
  if (bytes_ + bytes > kMaxCopies * read) {
    throw data_error(fmt::format(
        "weights that nodes share, one copy for each, take more than {} times what was read: export the network with "
        "weights of its own for each layer",
        kMaxCopies));
  }
}

void Network::count_bytes(size_t bytes) {
  check_room(bytes);
  bytes_ += bytes;
}

void Network::put(const std::string& node, const char* suffix, std::vector<int64_t> shape,
                  const std::vector<float>& values) {
  count_bytes(values.size() * sizeof(float));
  result_.weights.tensors[fmt::format("{}.{}", node, suffix)] = float_tensor(std::move(shape), values.data());
}

std::vector<float> Network::floats(const std::string& node, const char* suffix) const {
  return to_float(result_.weights.tensors.at(fmt::format("{}.{}", node, suffix)));
}

void Network::scale_layer(Node& layer, const std::vector<float>& factors, const std::vector<float>& shifts) {
  TensorData& weight = result_.weights.tensors.at(layer.name + ".weight");
  std::vector<float> values = to_float(weight);
  const size_t each = values.size() / factors.size();
  for (size_t i = 0; i < values.size(); ++i) values[i] *= factors[i / each];
  weight = float_tensor(weight.shape, values.data());
  std::vector<float> biases = layer.bias ? floats(layer.name, "bias") : std::vector<float>(factors.size(), 0.0f);
  for (size_t k = 0; k < factors.size(); ++k) biases[k] = factors[k] * biases[k] + shifts[k];
  layer.bias = layer.bias || std::any_of(shifts.begin(), shifts.end(), [](float shift) { return shift != 0; });
  if (layer.bias) put(layer.name, "bias", {static_cast<int64_t>(biases.size())}, biases);
}

OnnxValue Network::constant(Constant constant) {
  count_bytes(constant.bytes());
  constant.is_finite =
      std::all_of(constant.reals.begin(), constant.reals.end(), [](float value) { return std::isfinite(value); });
  return {.constant = std::make_shared<const Constant>(std::move(constant))};
}

Constant Network::read(const onnx::TensorProto& tensor, const std::string& what) {
  Constant constant = read_constant(file_, tensor, fmt::format("{}: {}", file_.name, what));
  if (constant.type == onnx::TensorProto::FLOAT16) rounding = 3e-4;
  if (constant.type == onnx::TensorProto::DOUBLE)
    note("weights of float64 become the nearest float32; the network computes in float32");
  const std::string all = counted(static_cast<long>(constant.elements()), "float64 value");
  if (constant.too_large > 0)
    note(fmt::format("{}: {} of {} beyond 3.4e38, the end of float32: infinite here", what, constant.too_large, all));
  if (constant.too_small > 0)
    note(fmt::format("{}: {} of {} nearer to 0 than 1.2e-38, where float32 loses digits: 0 or rounded further here",
                     what, constant.too_small, all));
  return constant;
}

const OnnxValue* Network::find(const std::string& name) {
  if (const auto found = values.find(name); found != values.end()) return &found->second;
  const auto weight = initializers.find(name);
  if (weight == initializers.end()) return nullptr;
  const int type = weight->second->data_type();
  if (type == onnx::TensorProto::FLOAT16 || type == onnx::TensorProto::BFLOAT16)
    note("weights of float16 or bfloat16 become float32, which holds each of them; the network computes in float32");
  return &values.emplace(name, constant(read(*weight->second, fmt::format("weights '{}'", shown_name(name)))))
              .first->second;
}

ImportedNetwork Network::finish(const std::vector<OnnxValue>& outputs) {
  const std::vector<Node>& nodes = result_.graph.nodes;
  std::vector<bool> needed(nodes.size(), false);
  needed[0] = true;
  for (const OnnxValue& output : outputs) needed[static_cast<size_t>(output.node)] = true;
  for (size_t n = nodes.size(); n-- > 0;) {
    if (!needed[n]) continue;
    for (const int input : nodes[n].inputs) needed[static_cast<size_t>(input)] = true;
  }
  Graph graph;
  graph.name = result_.graph.name;
  std::vector<int> place(nodes.size(), -1);
  for (size_t n = 0; n < nodes.size(); ++n) {
    if (!needed[n]) continue;
    place[n] = static_cast<int>(graph.nodes.size());
    graph.nodes.push_back(nodes[n]);
    for (int& input : graph.nodes.back().inputs) input = place[static_cast<size_t>(input)];
  }
  for (const OnnxValue& output : outputs) graph.outputs.push_back(place[static_cast<size_t>(output.node)]);
  infer_shapes(graph);
  result_.graph = std::move(graph);
  keep_parameters(result_.graph, result_.weights);
  return std::move(result_);
}

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
