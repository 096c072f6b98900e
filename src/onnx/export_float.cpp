#include <fmt/format.h>

#include "src/common/error.h"
#include "src/onnx/curves.h"
#include "src/onnx/export.h"
#include "src/onnx/rows.h"
#include "src/onnx/writer.h"

namespace octet {
namespace {

class FloatWriter {
 public:
  FloatWriter(const Graph& graph, const TensorFile& weights, int opset)
      : graph_(graph),
        weights_(weights),
        writer_(graph.name, graph.nodes.front().shape, opset),
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

  std::string parameter(const Node& node, const char* suffix) {
    const std::string name = fmt::format("{}.{}", node.name, suffix);
    const auto found = weights_.tensors.find(name);
    if (found == weights_.tensors.end()) fail(node, "the weights lack " + name);
    const std::vector<float> values = to_float(found->second);
    return writer_.floats(name, found->second.shape, values.data());
  }

  std::vector<std::string> with_parameters(const Node& node, const std::string& x) {
    std::vector<std::string> inputs = {x, parameter(node, "weight")};
    if (node.bias) inputs.push_back(parameter(node, "bias"));
    return inputs;
  }

  const Shape& shape_of(const Node& node, size_t input) const {
    return graph_.nodes[static_cast<size_t>(node.inputs[input])].shape;
  }

  std::string emit(const Node& node, bool row) {
    if (node.op == Op::input) return kImages;
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
      case Op::add:
        return writer_.node("Add", node.name, x);
      case Op::concat:
        return writer_.concat(node.name, x);
      case Op::max_pool:
        return writer_.max_pool(node.name, x[0], node.window);
      case Op::avg_pool:
        return writer_.avg_pool(node.name, x[0], node.window);
      case Op::global_avg_pool:
        return writer_.node("GlobalAveragePool", node.name, x);
      case Op::flatten:
        return writer_.flatten(node.name, x[0]);
      case Op::dropout:
        return writer_.node("Dropout", node.name, {x[0], writer_.scalar(node.name + "/ratio", node.dropout)});
      case Op::slice:
        return writer_.slice(node.name, x[0], node.first_channel, node.out_channels);
      case Op::channel_shuffle:
        return writer_.channel_shuffle(node.name, x[0], node.shape, node.groups);
      case Op::depth_to_space:
        if (node.factor_h != node.factor_w) fail(node, "ONNX's blocks are squares");
        y = writer_.node("DepthToSpace", node.name, x);
        writer_.attribute("blocksize", node.factor_h);
        return y;
      case Op::resize:
      case Op::resize_bilinear:
        return writer_.resize(node.name, x[0], node.factor_h, node.factor_w, node.op == Op::resize_bilinear);
      case Op::subsample_pad:
        return writer_.subsample_pad(node.name, x[0], node.window,
                                     node.out_channels - graph_.nodes[static_cast<size_t>(node.inputs[0])].shape.c);
      case Op::matmul:
        return writer_.matmul(node.name, x, {shape_of(node, 0), shape_of(node, 1)}, node.groups, node.transposed,
                              node.scale);
      case Op::softmax:
        return writer_.softmax(node.name, x[0], node.shape, node.groups);
      case Op::mul:
        return writer_.node("Mul", node.name, x);
      case Op::lookup:
        return write_curve(writer_, node.curve, node.name, x[0]);
      default:
        fail(node, "has no form in ONNX here");
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
