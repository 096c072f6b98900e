// SPDX-License-Identifier: Apache-2.0
// What the float and the QDQ form of a network are written with: an ONNX model under construction, the operators that
// both forms write alike (writer_operators.cpp), and what QDQ cannot express (qdq_limits.cpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/core/quantize.h"
#include "onnx.pb.h"
#include "src/net/graph.h"
#include "src/net/int8_graph.h"
#include "src/net/onnx/onnx.h"
#include "src/net/op_traits.h"
#include "src/net/shapes.h"

namespace octet {

/// What the input and the outputs are called.
struct EndNames {
  std::string input = "images";
  std::vector<std::string> outputs;  ///< empty: a single one "logits", several as their nodes

  std::string output(size_t index, size_t count, const std::string& node) const {
    if (!outputs.empty()) return outputs[index];
    return count == 1 ? "logits" : node;
  }
};

/// An ONNX model while it is written: one input, then constants and nodes in order, then the outputs.
class OnnxWriter {
 public:
  OnnxWriter(const std::string& name, const Shape& input, int opset, EndNames ends = {});

  const std::string& input() const { return ends_.input; }

  // Each of these appends a constant and returns its name: `stem`, made unique.
  std::string floats(const std::string& stem, const std::vector<int64_t>& shape, const float* values);
  std::string codes(const std::string& stem, const std::vector<int64_t>& shape, const std::vector<int8_t>& values);
  std::string int32s(const std::string& stem, const std::vector<int32_t>& values);
  std::string int64s(const std::string& stem, const std::vector<int64_t>& values);
  std::string scalar(const std::string& stem, float value);
  std::string zero_point(const std::string& stem, int32_t code, bool is_signed);

  /// Appends a node and returns its name, which is also that of its output: `name`, made unique.
  std::string node(const std::string& op, const std::string& name, const std::vector<std::string>& inputs);

  // Each of these adds an attribute to the last node.
  void attribute(const char* name, int64_t value);
  void attribute(const char* name, const std::vector<int64_t>& values);
  void real_attribute(const char* name, double value);
  void text_attribute(const char* name, const std::string& value);
  void window(const Window& window, bool dilations);  ///< kernel_shape, strides, pads; dilations

  std::string flatten(const std::string& name, const std::string& x);

  /// Returns the values that a node called `name` reads. `edges` are the values of the graph's nodes, `nodes` the
  /// inputs of this one. A value [N, C] becomes an image [N, C, 1, 1] unless this node gives [N, C] too (`row`).
  /// `rows`: find_rows().
  std::vector<std::string> inputs(const std::string& name, const std::vector<int>& nodes, bool row,
                                  const std::vector<std::string>& edges, const std::vector<bool>& rows);

  int opset() const { return static_cast<int>(model_.opset_import(0).version()); }

  /// Names the outputs of the graph by EndNames. Those of one pixel become [N, C], others are [N, C, H, W]. `edges` are
  /// the values of the graph's nodes, `rows` is find_rows().
  template <typename AnyGraph>
  void outputs(const AnyGraph& graph, const std::vector<std::string>& edges, const std::vector<bool>& rows) {
    std::vector<Output> all;
    for (size_t o = 0; o < graph.outputs.size(); ++o) {
      const auto at = static_cast<size_t>(graph.outputs[o]);
      const auto& node = graph.nodes[at];
      all.push_back({ends_.output(o, graph.outputs.size(), node.name), edges[at], node.shape, rows[at]});
    }
    name_outputs(std::move(all));
  }

  /// Returns the bytes of the file.
  std::string finish(const Preprocessing& preprocessing, const std::vector<std::string>& class_names);

 private:
  struct Output {
    std::string name, value;
    Shape shape;
    bool row;
  };
  void name_outputs(std::vector<Output> all);
  std::string fresh(std::string name);
  std::string constant(const std::string& stem, int type, const std::vector<int64_t>& shape, const void* data,
                       size_t size);

  onnx::ModelProto model_;
  EndNames ends_;
  std::set<std::string> names_ = {ends_.input, ends_.output(0, 1, "")};
};

/// A node that the float and the QDQ form write alike.
struct SharedNode {
  std::string name;
  ShapeAttributes attributes;
  std::vector<Shape> inputs;                       ///< their shapes
  Shape shape;                                     ///< of the output
  bool row = false;                                ///< whether its value is [N, C]
  float scale = 1;                                 ///< matmul
  std::vector<float> slopes;                       ///< prelu: one for each group
  std::vector<float> input_scales, output_scales;  ///< lookup: one for each channel, or none
  std::optional<Function> function;                ///< lookup
};

/// Appends the nodes that compute a shared node's operator from the values x, and returns their result. Throws
/// Error(usage) naming the node if ONNX cannot express it.
std::string write_operator(OnnxWriter& writer, const SharedNode& node, const std::vector<std::string>& x);

/// Undoes function_text(). Returns none for any other text.
std::optional<Function> read_function(const std::string& text);

/// Returns for each node of a Graph or Int8Graph whether its value is [N, C] in ONNX: octet's linear layers give
/// [C, 1, 1], ONNX's Gemm [N, C].
template <typename AnyGraph>
std::vector<bool> find_rows(const AnyGraph& graph) {
  std::vector<bool> rows;
  for (const auto& node : graph.nodes) {
    const OpTraits& op = traits(node.op);
    const bool image = op.op == Op::input || op.op == Op::conv2d || op.windowed || op.op == Op::global_avg_pool ||
                       op.op == Op::matmul || op.op == Op::softmax;
    const bool from_rows = std::all_of(node.inputs.begin(), node.inputs.end(),
                                       [&](int input) { return rows[static_cast<size_t>(input)]; });
    rows.push_back(op.op == Op::linear || op.op == Op::flatten || (!image && from_rows));
  }
  return rows;
}

// Where the QDQ form ends: nodes that it cannot express, which are refused before they are written, and biases of int8
// runtimes. A QDQ file may give biases in float32, but ONNX Runtime and others add them to int32 sums, as codes of
// scale input scale * weight scale. These saturate where weights are far smaller than their bias, as weight decay makes
// them in a channel that is nearly dead.

/// Throws Error(usage) naming the node if its multipliers are not the ratios of its scales, its table is not that of
/// its function, or the profile does not take its codes.
void check_expressible(const Int8Graph& graph, const Int8Node& node, OnnxProfile profile);

/// Returns the int32 code of a bias, rounded half to even and saturated.
int32_t int32_bias(double bias, double scale);

/// Returns a weight scale with which the bias is about 2^30 int32 codes, so that as many are left for the sum.
float scale_for_bias(double bias, double x_scale);

/// The biases of one layer: makes them fit int32, and finds what int8 runtimes will compute with them.
class Int32Biases {
 public:
  /// Takes the next output channel. Its weights are codes * scale, `x` is for the layer's input, `y_scale` is the scale
  /// of its output. If the int32 bias would saturate or make the sum overflow, raises the scale and rounds the codes
  /// again; else changes nothing.
  void fit(std::span<int8_t> codes, float& scale, float bias, const QParams& x, double y_scale);

  /// Returns for people which scales were raised, and which biases as int32 differ by more than a tenth of an output's
  /// code.
  std::vector<std::string> notes(const std::string& layer) const;

 private:
  int channels_ = 0, raised_ = 0, first_raised_ = 0, worst_ = 0;
  double moved_ = 0;  ///< the most that raised scales move an output, in codes
  double off_ = 0;    ///< the most that an int32 bias is away from the bias, in codes
};

}  // namespace octet
