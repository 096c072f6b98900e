// SPDX-License-Identifier: Apache-2.0
// octet inspect FILE.onnx: the network as it would be imported, or the rules of another runtime that it breaks.
#include "tools/octet/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "src/base/text.h"
#include "src/net/onnx/export.h"
#include "src/net/onnx/import.h"
#include "src/net/shapes.h"

namespace octet::cli {
namespace {

long own_weights(const ImportedNetwork& network, const std::string& node) {
  long count = 0;
  for (const char* suffix : {"weight", "bias", "running_mean", "running_var"}) {
    const auto found = network.weights.tensors.find(fmt::format("{}.{}", node, suffix));
    if (found != network.weights.tensors.end())
      count += static_cast<long>(found->second.bytes.size() / dtype_size(found->second.dtype));
  }
  return count;
}

std::string text(const ImportedNetwork& network, const std::string& path) {
  TextTable table({{"node", Align::left},
                   {"op", Align::left},
                   {"inputs", Align::left},
                   {"window", Align::left},
                   {"output"},
                   {"weights"}});
  long weights = 0;
  for (const Node& node : network.graph.nodes) {
    std::vector<std::string> inputs;
    for (const int input : node.inputs) inputs.push_back(network.graph.nodes[static_cast<size_t>(input)].name);
    const long own = own_weights(network, node.name);
    weights += own;
    table.add_row({node.name, std::string(op_name(node.op)), fmt::format("{}", fmt::join(inputs, " ")),
                   text_of(attributes_of(node)), fmt::format("{}x{}x{}", node.shape.c, node.shape.h, node.shape.w),
                   own == 0 ? "" : with_thousands(own)});
  }
  std::vector<std::string> outputs;
  for (const int output : network.graph.outputs)
    outputs.push_back(to_string(network.graph.nodes[static_cast<size_t>(output)].shape));
  std::string out = fmt::format("{}: ONNX opset {}, written by {}\n", path, network.opset, printable(network.producer));
  out += fmt::format("input {}, output {}, {} weights, {} multiply-adds an image\n",
                     to_string(network.graph.nodes.front().shape), fmt::join(outputs, " and "), with_thousands(weights),
                     human_count(static_cast<double>(multiply_adds(network.graph))));
  for (const std::string& note : network.notes) out += fmt::format("note: {}\n", printable(note));
  return out + "\n" + table.render();
}

std::string json(const ImportedNetwork& network) {
  nlohmann::json nodes = nlohmann::json::array();
  for (const Node& node : network.graph.nodes) {
    nodes.push_back({{"name", node.name},
                     {"op", std::string(op_name(node.op))},
                     {"inputs", node.inputs},
                     {"shape", {node.shape.c, node.shape.h, node.shape.w}},
                     {"weights", own_weights(network, node.name)}});
    add_attributes(attributes_of(node), nodes.back());
  }
  const nlohmann::json document = {{"name", network.graph.name},   {"opset", network.opset},
                                   {"producer", network.producer}, {"multiply_adds", multiply_adds(network.graph)},
                                   {"notes", network.notes},       {"nodes", nodes}};
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

ExitCode inspect_onnx(const Common& common, const std::string& path, const std::vector<std::string>& outputs,
                      int image_size) {
  const ImportedNetwork network = import_onnx(path, outputs, image_size);
  print_result(common, text(network, path), [&] { return json(network); });
  return ExitCode::ok;
}

ExitCode inspect_tensorrt_rules(const Common& common, const std::string& path) {
  const std::vector<std::string> faults = tensorrt_faults(path);
  const std::string text =
      faults.empty() ? fmt::format("{}: keeps TensorRT's rules for QDQ models", path)
                     : fmt::format("{}: breaks TensorRT's rules for QDQ models\n{}", path, fmt::join(faults, "\n"));
  print_result(common, text, [&] { return nlohmann::json{{"rules", "tensorrt"}, {"faults", faults}}.dump(2); });
  return faults.empty() ? ExitCode::ok : ExitCode::data;
}

}  // namespace octet::cli
