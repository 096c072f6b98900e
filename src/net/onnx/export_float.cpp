// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "src/base/error.h"
#include "src/net/onnx/network.h"
#include "src/net/onnx/onnx.h"
#include "src/net/onnx/writer.h"

namespace octet {
namespace {

EndNames float_end_names(const Graph& graph) {
  if (graph.file_outputs.empty()) return {};
  return {graph.nodes.front().name, names_of_outputs(graph)};
}

class FloatWriter {
 public:
  FloatWriter(const Graph& graph, const TensorFile& weights, int opset)
      : graph_(graph),
        weights_(weights),
        writer_(graph.name, graph.nodes.front().shape, opset, float_end_names(graph)),
        rows_(find_rows(graph)) {}

  std::string run(const Preprocessing& preprocessing) {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) edges_.push_back(emit(graph_.nodes[n], rows_[n]));
    writer_.outputs(graph_, edges_, rows_);
    return writer_.finish(preprocessing, {});
  }

 private:
  [[noreturn]] void fail(const Node& node, const std::string& what) const {
    throw usage_error(fmt::format("export: node '{}' ({}): {}", node.name, op_name(node.op), what));
  }

  const TensorData& tensor(const Node& node, const std::string& name) const {
    const auto found = weights_.tensors.find(name);
    if (found == weights_.tensors.end()) fail(node, "the weights lack " + name + "; octet train makes the run anew");
    return found->second;
  }

  std::string parameter(const Node& node, const char* suffix) {
    const std::string name = fmt::format("{}.{}", node.name, suffix);
    const TensorData& found = tensor(node, name);
    const std::vector<float> values = to_float(found);
    return writer_.floats(name, found.shape, values.data());
  }

  std::vector<std::string> with_parameters(const Node& node, const std::string& x) {
    std::vector<std::string> inputs = {x, parameter(node, "weight")};
    if (node.bias) inputs.push_back(parameter(node, "bias"));
    return inputs;
  }

  SharedNode shared(const Node& node, bool row) const {
    SharedNode shared{.name = node.name,
                      .attributes = shape_attributes(node),
                      .shape = node.shape,
                      .row = row,
                      .scale = node.scale,
                      .function = node.function};
    for (const int input : node.inputs) shared.inputs.push_back(graph_.nodes[static_cast<size_t>(input)].shape);
    if (node.op == Op::lookup && node.groups > 1) {
      shared.input_scales = to_float(tensor(node, node.name + ".input_scale"));
      shared.output_scales = to_float(tensor(node, node.name + ".output_scale"));
    }
    if (node.op == Op::prelu) shared.slopes = to_float(tensor(node, node.name + ".weight"));
    return shared;
  }

  std::string emit(const Node& node, bool row) {
    if (node.op == Op::input) return writer_.input();
    if (node.activation != Activation::none || !node.batch_norm.empty())
      fail(node, "is fused; the float network is written as it was trained");
    const std::vector<std::string> x = writer_.inputs(node.name, node.inputs, row, edges_, rows_);
    std::string y;
    switch (node.op) {
      case Op::conv2d:
        y = writer_.node("Conv", node.name, with_parameters(node, x[0]));
        writer_.window(node.window, true);
        writer_.attribute("group", node.groups);
        return y;
      case Op::linear:
        y = writer_.node("Gemm", node.name, with_parameters(node, writer_.flatten(node.name + "/Flatten", x[0])));
        writer_.attribute("transB", 1);
        return y;
      case Op::batch_norm:
        y = writer_.node("BatchNormalization", node.name,
                         {x[0], parameter(node, "weight"), parameter(node, "bias"), parameter(node, "running_mean"),
                          parameter(node, "running_var")});
        writer_.real_attribute("epsilon", node.epsilon);
        return y;
      case Op::relu:
        return writer_.node("Relu", node.name, x);
      case Op::relu6:
        return writer_.node("Clip", node.name,
                            {x[0], writer_.scalar(node.name + "/min", 0), writer_.scalar(node.name + "/max", 6)});
      case Op::dropout:
        return writer_.node("Dropout", node.name, {x[0], writer_.scalar(node.name + "/ratio", node.dropout)});
      default:
        return write_operator(writer_, shared(node, row), x);
    }
  }

  const Graph& graph_;
  const TensorFile& weights_;
  OnnxWriter writer_;
  const std::vector<bool> rows_;
  std::vector<std::string> edges_;
};

}  // namespace

std::string write_float(const Graph& graph, const TensorFile& weights, const Preprocessing& preprocessing, int opset) {
  return FloatWriter(graph, weights, opset).run(preprocessing);
}

}  // namespace octet
