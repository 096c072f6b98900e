// SPDX-License-Identifier: Apache-2.0
#include "src/net/onnx/onnx.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "onnx.pb.h"
#include "src/base/files.h"

namespace octet {
namespace {

/// Returns for each node whether its values are in another order than the model's: H, W, C instead of C, H, W.
std::vector<bool> flattened(const Int8Graph& graph) {
  std::vector<bool> found;
  for (const Int8Node& node : graph.nodes) {
    bool other = false;
    for (const int input : node.inputs) {
      const Shape& shape = graph.nodes[static_cast<size_t>(input)].shape;
      other = other || found[static_cast<size_t>(input)] || (node.op == Int8Op::flatten && shape.h * shape.w > 1);
    }
    found.push_back(other && node.op != Int8Op::linear);
  }
  return found;
}

/// Parses a model that needs no other file. `name` stands for it in messages.
onnx::ModelProto whole_model(const std::string& bytes, const std::string& name) {
  onnx::ModelProto model;
  if (!model.ParseFromString(bytes))
    throw data_error(name + ": damaged, or not an ONNX model: fetch or export it again");
  for (const onnx::TensorProto& tensor : model.graph().initializer()) {
    if (tensor.data_location() != onnx::TensorProto::EXTERNAL) continue;
    throw data_error(
        fmt::format("{}: its weights lie in other files; put them into one: onnx.save(onnx.load(FILE), NEW)", name));
  }
  return model;
}

ShownCodes shown(const Int8Graph& graph, const std::string& bytes, std::vector<std::string> values,
                 const std::string& name) {
  onnx::ModelProto model = whole_model(bytes, name);
  onnx::GraphProto& network = *model.mutable_graph();
  std::set<std::string> given;
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const auto node = static_cast<size_t>(graph.outputs[i]);
    const std::string& output = network.output(static_cast<int>(i)).name();
    if (graph.nodes[node].float_output) values[node] = output;
    given.insert(output);
  }
  const std::vector<bool> other_order = flattened(graph);
  for (size_t n = 0; n < values.size(); ++n) {
    if (other_order[n]) values[n].clear();
    if (!values[n].empty() && given.insert(values[n]).second) network.add_output()->set_name(values[n]);
  }
  return {model.SerializeAsString(), std::move(values)};
}

}  // namespace

ShownCodes show_codes(const Int8Graph& graph) {
  std::vector<std::string> codes;
  const std::string bytes = write_qdq(graph, {}, &codes);
  return shown(graph, bytes, std::move(codes), graph.name);
}

ShownCodes show_outputs(const std::string& path, std::vector<std::string> outputs) {
  onnx::ModelProto model = whole_model(read_file(path), path);
  onnx::GraphProto& network = *model.mutable_graph();
  std::set<std::string> given;
  for (const onnx::ValueInfoProto& output : network.output()) given.insert(output.name());
  if (outputs.empty())
    for (const onnx::ValueInfoProto& output : network.output()) outputs.push_back(output.name());
  for (const std::string& output : outputs)
    if (given.insert(output).second) network.add_output()->set_name(output);
  outputs.insert(outputs.begin(), "");  // of the input
  return {model.SerializeAsString(), std::move(outputs)};
}

ShownCodes show_codes(const ImportedInt8& imported, const std::string& path) {
  return shown(imported.graph, read_file(path), imported.codes, path);
}

}  // namespace octet
