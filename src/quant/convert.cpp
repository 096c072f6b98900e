// SPDX-License-Identifier: Apache-2.0
#include "src/quant/convert.h"

#include <algorithm>
#include <cmath>

#include "kernels/training/fake_quantize.h"
#include "kernels/training/observe.h"
#include "src/base/error.h"
#include "src/net/op_traits.h"
#include "src/quant/node_constants.h"
#include "src/quant/plan.h"

namespace octet {
namespace {

Int8Op int8_op(Op op) {
  if (op == Op::relu || op == Op::relu6) return Int8Op::requantize;  // the activation becomes its bounds
  if (const std::optional<Int8Op> same = traits(op).int8) return *same;
  throw usage_error("convert: a " + std::string(op_name(op)) + " has no int8 form; call fuse first");
}

Activation activation(const Node& node) {
  if (node.op == Op::relu) return Activation::relu;
  if (node.op == Op::relu6) return Activation::relu6;
  return node.activation;
}

void check_edge(const Prepared& prepared, const std::vector<QParams>& edges, int n) {
  const QParams& q = edges[n];
  const QParams& range = prepared.range[n];
  const std::string name = "convert: output of '" + prepared.graph.nodes[n].name + "': ";
  if (!(q.scale > 0) || !std::isfinite(q.scale)) {
    throw promise_error(name + "scale " + std::to_string(q.scale) + " is not a positive finite number");
  }
  const bool zero_point_fits = prepared.affine[n] ? q.zero_point >= q.quant_min && q.zero_point <= q.quant_max
                                                  : q.zero_point == range.zero_point;
  if (q.quant_min != range.quant_min || q.quant_max != range.quant_max || !zero_point_fits) {
    throw promise_error(name + "codes [" + std::to_string(q.quant_min) + ", " + std::to_string(q.quant_max) +
                        "] with zero point " + std::to_string(q.zero_point) +
                        " do not follow from the recipe, which gives [" + std::to_string(range.quant_min) + ", " +
                        std::to_string(range.quant_max) + "]");
  }
}

/// Makes the int8 node of each node of the prepared graph.
class Converter {
 public:
  Converter(const Prepared& prepared, const FloatParams& params, const std::vector<QParams>& edges)
      : prepared_(prepared), graph_(prepared.graph), params_(params), edges_(edges) {
    if (edges.size() != graph_.nodes.size()) {
      throw promise_error("convert: qparams of " + std::to_string(edges.size()) + " edges for " +
                          std::to_string(graph_.nodes.size()) + " nodes");
    }
  }

  /// Returns the node, but for the codes of weights. weight_scale: of its weights, if it has some.
  Int8Node node(int n, std::vector<float> weight_scale) const {
    const Node& node = graph_.nodes[n];
    Int8Node result = int8_node(node, int8_op(node.op));
    result.inputs = node.inputs;
    result.float_output = prepared_.float_output(n);
    if (!result.float_output) set_output(n, result);
    if (has_weight(node.op)) {
      result.weight_scale = std::move(weight_scale);
      set_layer(n, result);
    } else if (node.op == Op::lookup) {
      set_tables(node, result);
    } else {
      set_multipliers(n, result);
    }
    return result;
  }

  /// Sets the codes of the weights of a node, whose scales it has.
  void set_weight(int n, Int8Node& result) const {
    const Node& node = graph_.nodes[n];
    const size_t outputs = static_cast<size_t>(node.out_channels);
    const Columns columns = weight_columns(n);
    const size_t taps = columns.size();
    const std::vector<float>& weight = find_parameter(params_, node.name + ".weight", outputs * taps);
    const WeightCodes codes = prepared_.weight_codes(n);
    result.weight.resize(outputs * taps);
    if (!kernels::find_range(weight.data(), weight.size()).finite)
      throw promise_error("convert: '" + node.name + "': a weight is not finite");
    std::vector<int8_t> row(taps);
    for (size_t k = 0; k < outputs; ++k) {
      kernels::quantize_to_int8(&weight[k * taps], taps, codes.qparams(result.weight_scale[k]), row.data());
      for (size_t i = 0; i < taps; ++i) result.weight[k * taps + i] = row[columns[i]];
    }
  }

 private:
  const QParams& edge(int n) const { return edges_[prepared_.root[n]]; }
  double output_scale(int n) const { return prepared_.float_output(n) ? 1.0 : edge(n).scale; }

  void set_output(int n, Int8Node& result) const {
    check_edge(prepared_, edges_, prepared_.root[n]);
    result.out = edge(n);
    result.clamp_min = result.out.quant_min;
    result.clamp_max = result.out.quant_max;
    const Activation act = activation(graph_.nodes[n]);
    if (act != Activation::none) result.clamp_min = std::max(result.clamp_min, result.out.zero_point);
    if (act == Activation::relu6) result.clamp_max = std::min(result.clamp_max, quantize(6.0f, result.out));
  }

  float ratio(double numerator, int n) const {
    const double value = numerator / output_scale(n);
    if (!(std::fabs(value) <= kMaxMultiplier)) {
      throw promise_error("convert: '" + graph_.nodes[n].name + "': multiplier " + std::to_string(value) +
                          " is too large");
    }
    return static_cast<float>(value);
  }

  void set_multipliers(int n, Int8Node& result) const {
    const Node& node = graph_.nodes[n];
    if (node.op == Op::softmax) result.exponentials = softmax_table(edge(node.inputs[0]));
    if (node.op == Op::prelu) {
      const std::vector<float>& slopes =
          find_parameter(params_, node.name + ".weight", static_cast<size_t>(node.groups));
      result.multiplier = prelu_multipliers(node, slopes, edge(node.inputs[0]).scale, output_scale(n));
      return;
    }
    const auto scale = [&](int input) { return edge(input).scale; };
    for (const double undivided : undivided_multipliers(graph_, node, result.op, scale))
      result.multiplier.push_back(ratio(undivided, n));
  }

  void set_tables(const Node& node, Int8Node& result) const {
    const std::vector<FunctionScale> scales = function_scales(node, params_);
    result.table =
        lookup_tables(node.function, scales, edge(node.inputs[0]), result.out, {result.clamp_min, result.clamp_max});
    result.function = function_text(node.function);
    if (scales.size() == 1) return;
    for (const FunctionScale& scale : scales) result.multiplier.push_back(scale.input);
    for (const FunctionScale& scale : scales) result.multiplier.push_back(scale.output);
  }

  void set_layer(int n, Int8Node& result) const {
    const Node& node = graph_.nodes[n];
    Folded folded =
        fold(node, params_, edge(node.inputs[0]).scale, result.weight_scale, static_cast<float>(output_scale(n)));
    result.multiplier = std::move(folded.multiplier);
    result.bias = std::move(folded.bias);
    if (node.inputs.size() > 1) result.residual_multiplier = ratio(edge(node.inputs[1]).scale, n);
    result.weight_bits = prepared_.bits.weight_bits[n];
    result.two_of_four = prepared_.sparse[n];
  }

  /// Returns where the weights of a row stand in PyTorch's order: element i of a row of the checkpoint, [taps,
  /// channels], is element columns[i] of PyTorch's, [channels, taps]. For a linear after a flatten, the taps are
  /// pixels.
  using Columns = std::vector<size_t>;
  Columns weight_columns(int n) const {
    const WeightRows rows = weight_rows(graph_, n);
    const size_t channels = static_cast<size_t>(rows.inputs), taps = static_cast<size_t>(rows.taps);
    Columns columns(channels * taps);
    for (size_t tap = 0; tap < taps; ++tap) {
      for (size_t c = 0; c < channels; ++c) columns[tap * channels + c] = c * taps + tap;
    }
    return columns;
  }

  const Prepared& prepared_;
  const Graph& graph_;
  const FloatParams& params_;
  const std::vector<QParams>& edges_;
};

}  // namespace

Int8Graph convert(const Prepared& prepared, const FloatParams& params, const std::vector<QParams>& edges,
                  const FloatParams& weight_scales, const Preprocessing& preprocessing,
                  const std::vector<std::string>& class_names) {
  const Converter converter(prepared, params, edges);
  Int8Graph result;
  result.name = prepared.graph.name;
  result.preprocessing = preprocessing;
  result.class_names = class_names;
  for (int n = 0; n < static_cast<int>(prepared.graph.nodes.size()); ++n) {
    const Node& node = prepared.graph.nodes[n];
    if (!has_weight(node.op)) {
      result.nodes.push_back(converter.node(n, {}));
      continue;
    }
    const size_t outputs = static_cast<size_t>(node.out_channels);
    result.nodes.push_back(converter.node(n, find_parameter(weight_scales, node.name, outputs)));
    converter.set_weight(n, result.nodes.back());
  }
  result.outputs = prepared.graph.outputs;
  validate(result);
  return result;
}

void change_edges(Int8Graph& graph, const Prepared& prepared, const FloatParams& params,
                  const std::vector<QParams>& edges) {
  const Converter converter(prepared, params, edges);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    Int8Node& before = graph.nodes[n];
    Int8Node node = converter.node(static_cast<int>(n), std::move(before.weight_scale));
    node.weight = std::move(before.weight);
    before = std::move(node);
  }
}

}  // namespace octet
