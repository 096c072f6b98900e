// SPDX-License-Identifier: Apache-2.0
// TensorRT's published rules for int8 networks with QuantizeLinear and DequantizeLinear (Q and DQ), held to a file
// without TensorRT. src/net/onnx/README.md has them as a table, with what is read where.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/net/onnx/network.h"
#include "src/net/onnx/onnx.h"
#include "src/net/onnx/rules.h"

namespace octet {
namespace {

using onnx::NodeProto;
using onnx::TensorProto;

/// A rule in our words, and where NVIDIA publishes it.
struct Published {
  const char* text;
  const char* source;
};

constexpr const char* kPlacement = "TensorRT, Explicit Quantization, Q/DQ Layer-Placement Recommendations";
constexpr const char* kGranularity = "TensorRT, Working with Quantized Types, per-tensor and per-channel quantization";

constexpr Published kForm = {"only Q and DQ quantize; operators on integers are not imported",
                             "onnx-tensorrt, docs/operators.md"};
constexpr Published kInt8 = {"8-bit codes are INT8 (UINT8 on DLA only); a Q that names no type gives UINT8 in ONNX",
                             "onnx-tensorrt, docs/operators.md, QuantizeLinear and DequantizeLinear"};
constexpr Published kSymmetric = {"quantization is symmetric: zero points are constants, all 0, as many as scales",
                                  "TensorRT, Working with Quantized Types; API, IQuantizeLayer"};
constexpr Published kScale = {"scales are constants in the file, finite and above 0",
                              "TensorRT, operator reference, Quantize; API, IQuantizeLayer"};
constexpr Published kPerTensor = {"an activation has one scale", kGranularity};
constexpr Published kPerChannel = {
    "weights have one scale, or one for each index of an axis: the output channels of Conv (0), of Gemm (0 with "
    "transB, else 1) and of a MatMul with a 2-D second input (1), the input channels of ConvTranspose (0)",
    kGranularity};
constexpr Published kAxis = {"scales along an axis need opset 13",
                             "ONNX, QuantizeLinear; TensorRT takes opset 9 to 25"};
constexpr Published kPair = {"Q and DQ are pairs: nothing else reads or makes codes, which are no outputs either",
                             "TensorRT, Explicit Quantization, ONNX Support; onnx-tensorrt, docs/operators.md"};
constexpr Published kBias = {"biases stay in floating point; a DQ takes no INT32",
                             "TensorRT, operator reference, Dequantize; API, IDequantizeLayer"};
constexpr Published kInputs = {"both inputs of a Conv, ConvTranspose, Gemm or MatMul come from a DQ, or none",
                               kPlacement};
constexpr Published kResidual = {
    "of an Add behind a convolution the other input, the residual, is quantized, or both are; else the sum stays in "
    "floating point and the Q behind it is not fused",
    kPlacement};

constexpr const char* kQuantize = "QuantizeLinear";
constexpr const char* kDequantize = "DequantizeLinear";
constexpr int kMostCopies = 16;  ///< that are followed between a DQ and the layer that reads it

bool is(const NodeProto* node, std::string_view op) { return node != nullptr && node->op_type() == op; }

/// Whether a node is a layer with weights, or a MatMul of two activations.
bool is_layer(const NodeProto* node) {
  return is(node, "Conv") || is(node, "ConvTranspose") || is(node, "Gemm") || is(node, "MatMul");
}

/// Whether a node only copies values of its first input. TensorRT moves Q and DQ across these.
bool is_copy(const NodeProto* node) {
  static const std::set<std::string_view> kCopies = {"Flatten", "Identity",  "MaxPool",  "Reshape",
                                                     "Squeeze", "Transpose", "Unsqueeze"};
  return node != nullptr && node->input_size() > 0 && kCopies.contains(node->op_type());
}

class TensorRtRules {
 public:
  explicit TensorRtRules(OnnxFile& file) : graph_(file.model->graph()), network_(file) {
    for (const TensorProto& tensor : graph_.initializer()) network_.initializers.emplace(tensor.name(), &tensor);
    for (const NodeProto& node : graph_.node()) {
      for (const std::string& output : node.output()) makers_.emplace(output, &node);
      for (const std::string& input : node.input())
        if (!input.empty()) readers_[input].push_back(&node);
    }
    for (const onnx::ValueInfoProto& output : graph_.output()) readers_[output.name()].push_back(nullptr);
  }

  /// Returns one line for each rule that is broken.
  std::vector<std::string> run() {
    size_t quantizing = 0;
    for (const NodeProto& node : graph_.node()) {
      if (!cure_of_other_form(node.op_type()).empty()) fault(node, kForm, "an operator on integers");
      if (is(&node, kQuantize) || is(&node, kDequantize)) ++quantizing, check_codes(node);
      if (is(&node, kQuantize)) check_sum(node);
      if (is_layer(&node)) check_layer(node);
    }
    if (quantizing == 0 && faults_.empty())
      throw data_error(fmt::format("{}: has no {} and no {}, which TensorRT's rules are about: a float network",
                                   network_.file().name, kQuantize, kDequantize));
    std::vector<std::string> lines;
    for (const Fault& fault : faults_) {
      const auto more = static_cast<long>(fault.nodes.size()) - 1;
      lines.push_back(fmt::format("{}{}. The rule: {} ({})", fault.text,
                                  more == 0 ? "" : fmt::format(" ({} likewise)", counted(more, "other node")),
                                  fault.rule->text, fault.rule->source));
    }
    return lines;
  }

 private:
  struct Fault {
    const Published* rule;
    std::string text;  ///< of the first node
    std::set<const NodeProto*> nodes;
  };

  void fault(const NodeProto& node, const Published& rule, const std::string& what) {
    const auto found = std::find_if(faults_.begin(), faults_.end(), [&](const Fault& f) { return f.rule == &rule; });
    if (found != faults_.end()) return void(found->nodes.insert(&node));
    faults_.push_back({&rule, fmt::format("{}: {}", NodeReader(node, network_).label(), what), {&node}});
  }

  const NodeProto* maker(const std::string& value) const {
    const auto found = makers_.find(value);
    return found == makers_.end() ? nullptr : found->second;
  }

  /// Returns what reads a node's first output; null stands for an output of the file.
  const std::vector<const NodeProto*>& readers(const NodeProto& node) {
    return readers_[node.output_size() > 0 ? node.output(0) : ""];
  }

  /// Returns an input that is a constant of the file, else null.
  const Constant* constant(const NodeProto& node, int input) {
    if (input >= node.input_size() || node.input(input).empty()) return nullptr;
    std::string name = node.input(input);
    const NodeProto* from = maker(name);
    for (int i = 0; i < kMostCopies && is(from, "Identity") && is_copy(from); ++i) from = maker(name = from->input(0));
    if (is(from, "Constant") && network_.find(name) == nullptr) {
      NodeReader reader(*from, network_);
      onnx_rules::constant(reader);
    }
    const OnnxValue* value = network_.find(name);
    return value == nullptr ? nullptr : value->constant.get();
  }

  /// Returns the node that gives an input its values, before copies; whether these transpose them.
  const NodeProto* origin(const NodeProto& node, int input, bool* transposed = nullptr) const {
    const NodeProto* found = input < node.input_size() ? maker(node.input(input)) : nullptr;
    for (int i = 0; i < kMostCopies && is_copy(found); ++i) {
      if (transposed != nullptr) *transposed ^= is(found, "Transpose");
      found = maker(found->input(0));
    }
    return found;
  }

  bool is_dequantized(const NodeProto& node, int input) const { return is(origin(node, input), kDequantize); }

  /// Returns the constant that a Q, or a DQ with or without a Q before it, quantizes: weights; null for activations.
  const Constant* weights(const NodeProto& node) {
    if (const Constant* own = constant(node, 0)) return own;
    const NodeProto* before = node.input_size() > 0 ? maker(node.input(0)) : nullptr;
    return is(&node, kDequantize) && is(before, kQuantize) ? constant(*before, 0) : nullptr;
  }

  bool is_bias(const NodeProto& node) {
    const auto& all = readers(node);
    return std::any_of(all.begin(), all.end(), [&](const NodeProto* reader) {
      return is_layer(reader) && reader->input_size() > 2 && reader->input(2) == node.output(0);
    });
  }

  /// Returns ONNX's number for the type of the codes that a Q gives or a DQ takes.
  int64_t type_of_codes(const NodeProto& node) {
    const bool to_codes = is(&node, kQuantize);
    if (const Constant* codes = to_codes ? nullptr : constant(node, 0)) return codes->type;
    if (const Constant* zero = constant(node, 2)) return zero->type;
    if (!to_codes) return TensorProto::INT8;  // those of a Q, which is checked itself
    const int64_t given = NodeReader(node, network_).integer("output_dtype", 0);
    return given != 0 ? given : int64_t{TensorProto::UINT8};
  }

  void check_codes(const NodeProto& node) {
    NodeReader reader(node, network_);
    const int64_t type = type_of_codes(node);
    if (is(&node, kDequantize) && is_bias(node))
      return fault(node, kBias, fmt::format("gives a bias, of {} codes", type_name(type)));
    if (type != TensorProto::INT8) fault(node, kInt8, fmt::format("its codes are {}", type_name(type)));
    check_pair(node);
    const Constant* scale = constant(node, 1);
    if (scale == nullptr || !scale->real) return fault(node, kScale, "its scale is no real constant");
    for (const float value : scale->reals)
      if (!(value > 0) || !std::isfinite(value)) fault(node, kScale, fmt::format("has a scale of {}", value));
    if (reader.has_input(2)) check_zero_point(node, scale->elements());
    if (scale->elements() == 1) return;
    if (weights(node) == nullptr) return fault(node, kPerTensor, fmt::format("has {} scales", scale->elements()));
    if (reader.opset() < 13)
      fault(node, kAxis, fmt::format("has {} scales in opset {}", scale->elements(), reader.opset()));
  }

  void check_zero_point(const NodeProto& node, size_t scales) {
    const Constant* zero = constant(node, 2);
    if (zero == nullptr || zero->real) return fault(node, kSymmetric, "its zero point is no integer constant");
    if (zero->elements() != scales)
      fault(node, kSymmetric, fmt::format("has {} zero points for {} scales", zero->elements(), scales));
    const auto other = std::find_if(zero->integers.begin(), zero->integers.end(), [](int64_t z) { return z != 0; });
    if (other != zero->integers.end()) fault(node, kSymmetric, fmt::format("has a zero point of {}", *other));
  }

  void check_pair(const NodeProto& node) {
    if (is(&node, kDequantize)) {
      const NodeProto* before = node.input_size() > 0 ? maker(node.input(0)) : nullptr;
      if (before != nullptr && !is(before, kQuantize) && constant(node, 0) == nullptr)
        fault(node, kPair, fmt::format("reads what a {} makes of codes", shown_name(before->op_type())));
      return;
    }
    for (const NodeProto* reader : readers(node))
      if (!is(reader, kDequantize))
        fault(node, kPair,
              reader == nullptr ? "gives an output codes"
                                : fmt::format("gives codes to {}", NodeReader(*reader, network_).label()));
  }

  void check_layer(const NodeProto& layer) {
    const bool dequantized[2] = {is_dequantized(layer, 0), is_dequantized(layer, 1)};
    if (dequantized[0] != dequantized[1] && layer.input_size() > 1)
      fault(layer, kInputs,
            fmt::format("input '{}' comes from no {}, the other does", shown_name(layer.input(dequantized[0] ? 1 : 0)),
                        kDequantize));
    for (int input : {0, 1})
      if (dequantized[input]) check_axis(layer, input);
  }

  /// Checks the axis of the scales of a layer's weights, as the DQ behind them has it.
  void check_axis(const NodeProto& layer, int input) {
    bool transposed = false;
    const NodeProto& from = *origin(layer, input, &transposed);
    const Constant* scale = constant(from, 1);
    const Constant* found = weights(from);
    if (scale == nullptr || found == nullptr || scale->elements() == 1) return;
    const auto rank = static_cast<int64_t>(found->shape.size());
    int64_t axis = NodeReader(from, network_).integer("axis", 1);
    if (axis < 0) axis += rank;
    const bool known = scale->shape.size() == 1 && axis >= 0 && axis < rank &&
                       found->shape[static_cast<size_t>(axis)] == scale->shape[0];
    const bool swapped = transposed && rank == 2;
    if (!known || input != 1 || (swapped ? 1 - axis : axis) != axis_of_scales(layer, rank))
      fault(layer, kPerChannel,
            fmt::format("its input {} is {} with scales {} along axis {}", input, dims_text(found->shape),
                        dims_text(scale->shape), axis));
  }

  /// Returns the axis of a layer's weights along which scales are taken, -1 for none.
  int64_t axis_of_scales(const NodeProto& layer, int64_t rank) {
    if (is(&layer, "Gemm")) return NodeReader(layer, network_).integer("transB", 0) != 0 ? 0 : 1;
    if (is(&layer, "MatMul")) return rank == 2 ? 1 : -1;
    return 0;
  }

  /// Whether an input of a node is the output of a layer on int8 inputs, in reals.
  bool is_of_layer(const NodeProto& node, int input) const {
    const NodeProto* found = origin(node, input);
    if (is(found, "BatchNormalization")) found = origin(*found, 0);
    return is_layer(found) && is_dequantized(*found, 0);
  }

  /// Checks which input of an Add is quantized, whose sum a Q takes, with or without a Relu or Clip between them.
  void check_sum(const NodeProto& quantize) {
    const NodeProto* from = origin(quantize, 0);
    if (is(from, "Relu") || is(from, "Clip")) from = origin(*from, 0);
    if (!is(from, "Add") || from->input_size() != 2) return;
    const NodeProto& sum = *from;
    if (constant(sum, 0) != nullptr || constant(sum, 1) != nullptr) return;
    bool dequantized[2], layer[2], quantized_layer[2];
    for (int i : {0, 1}) {
      dequantized[i] = is_dequantized(sum, i);
      layer[i] = is_of_layer(sum, i);
      const NodeProto* codes = dequantized[i] ? origin(*origin(sum, i), 0) : nullptr;
      quantized_layer[i] = is(codes, kQuantize) && is_of_layer(*codes, 0);
    }
    const bool any = layer[0] || layer[1] || quantized_layer[0] || quantized_layer[1];
    const bool fused = (layer[0] && dequantized[1]) || (layer[1] && dequantized[0]);
    if (!any || fused || (dequantized[0] && dequantized[1])) return;
    const int residual = layer[0] || quantized_layer[0] ? 1 : 0;
    fault(sum, kResidual,
          fmt::format("adds '{}', the output of a layer, to '{}', which is not quantized",
                      shown_name(sum.input(1 - residual)), shown_name(sum.input(residual))));
  }

  const onnx::GraphProto& graph_;
  Network network_;  ///< for the constants
  std::map<std::string, const NodeProto*> makers_;
  std::map<std::string, std::vector<const NodeProto*>> readers_;
  std::vector<Fault> faults_;  ///< one for each rule, in the order of the file
};

}  // namespace

std::vector<std::string> tensorrt_faults(const std::string& path) {
  OnnxFile file = open_onnx_file(path, /*as_written=*/true);
  return TensorRtRules(file).run();
}

std::vector<std::string> tensorrt_faults(const std::byte* data, size_t size, const std::string& name) {
  OnnxFile file = open_onnx(data, size, name, "", /*as_written=*/true);
  return TensorRtRules(file).run();
}

}  // namespace octet
