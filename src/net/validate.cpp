// SPDX-License-Identifier: Apache-2.0
// The check of an Int8Graph. Engines run what it accepts without checking sizes, ranges or overflow again.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "kernels/training/weights.h"
#include "src/base/error.h"
#include "src/base/numbers.h"
#include "src/net/int8_graph.h"
#include "src/net/op_traits.h"
#include "src/net/shapes.h"

namespace octet {
namespace {

constexpr int64_t kAccumulatorLimit = int64_t{1} << 31;

/// Checks one node, after all nodes before it have been checked.
class NodeCheck {
 public:
  NodeCheck(const Int8Graph& graph, size_t index) : graph_(graph), node_(graph.nodes[index]), index_(index) {}

  void run() const {
    require((node_.op == Int8Op::input) == (index_ == 0), "the input is node 0, and only node 0");
    check_inputs();
    if (const std::string fault = shape_fault(node_.shape); !fault.empty()) fail(fault);
    check_qparams();
    check_vectors();
    check_operation();
    if (node_.float_output) require(can_give_floats(traits(node_.op)), "copies codes, so it cannot give floats");
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw data_error(fmt::format("node {} '{}' ({}): {}", index_, node_.name, int8_op_name(node_.op), what));
  }
  void require(bool good, std::string_view what) const {
    if (!good) fail(std::string(what));
  }

  const Int8Node& in(size_t i) const { return graph_.nodes[static_cast<size_t>(node_.inputs[i])]; }
  bool weighted() const { return traits(node_.op).weighted; }
  bool has_residual() const { return node_.op == Int8Op::conv2d && node_.inputs.size() == 2; }

  void check_inputs() const {
    if (const std::string fault = arity_fault(traits(node_.op), node_.inputs.size()); !fault.empty()) fail(fault);
    for (const int input : node_.inputs) {
      if (input < 0 || static_cast<size_t>(input) >= index_)
        fail(fmt::format("input {} is not an earlier node", input));
      const Int8Node& from = graph_.nodes[static_cast<size_t>(input)];
      if (from.float_output) fail(fmt::format("reads '{}', which gives floats, not codes", from.name));
    }
  }

  void check_qparams() const {
    const QParams& q = node_.out;
    // A subnormal scale would depend on the machine's flush-to-zero mode.
    if (!std::isnormal(q.scale) || q.scale < 0) fail(fmt::format("scale {} is not a positive normal number", q.scale));
    const int32_t lo = q.is_signed() ? -128 : 0, hi = q.is_signed() ? 127 : 255;
    if (q.quant_min < lo || q.quant_max > hi || q.quant_min >= q.quant_max) {
      fail(fmt::format("codes [{}, {}] do not fit 8 bits", q.quant_min, q.quant_max));
    }
    if (q.zero_point < q.quant_min || q.zero_point > q.quant_max) {
      fail(fmt::format("zero point {} is outside the codes [{}, {}]", q.zero_point, q.quant_min, q.quant_max));
    }
    if (node_.clamp_min < q.quant_min || node_.clamp_max > q.quant_max || node_.clamp_min > node_.clamp_max) {
      fail(fmt::format("clamp [{}, {}] is outside the codes [{}, {}]", node_.clamp_min, node_.clamp_max, q.quant_min,
                       q.quant_max));
    }
  }

  void check_count(std::string_view what, size_t count, int64_t expected) const {
    if (static_cast<int64_t>(count) != expected) fail(fmt::format("{} {}, needs {}", count, what, expected));
  }

  void check_factors(std::string_view what, const std::vector<float>& values) const {
    for (size_t i = 0; i < values.size(); ++i) {
      if (!(std::abs(values[i]) <= kMaxMultiplier)) {
        fail(fmt::format("{} {}, number {}, is not finite or beyond {}", what, values[i], i, kMaxMultiplier));
      }
    }
  }

  /// Returns the multiply-adds of one output element.
  int64_t weights_per_channel() const {
    if (node_.op == Int8Op::linear) return in(0).shape.c;
    return saturating_product({in(0).shape.c / node_.groups, node_.window.kernel_h, node_.window.kernel_w});
  }

  int64_t multipliers() const {
    if (node_.op == Int8Op::lookup && node_.groups > 1) return int64_t{2} * node_.groups;
    switch (traits(node_.op).multipliers) {
      case Multipliers::none:
        break;
      case Multipliers::one:
        return 1;
      case Multipliers::one_per_input:
        return static_cast<int64_t>(node_.inputs.size());
      case Multipliers::one_per_channel:
        return node_.shape.c;
      case Multipliers::slopes:
        return int64_t{1} + node_.groups;
    }
    return 0;
  }

  void check_vectors() const {
    check_count("multipliers", node_.multiplier.size(), multipliers());
    check_count("biases", node_.bias.size(), weighted() ? node_.shape.c : 0);
    check_count("weight scales", node_.weight_scale.size(), weighted() ? node_.shape.c : 0);
    check_count("table entries", node_.table.size(), node_.op == Int8Op::lookup ? int64_t{256} * node_.groups : 0);
    check_count("exponentials", node_.exponentials.size(), node_.op == Int8Op::softmax ? 256 : 0);
    if (!weighted()) check_count("weights", node_.weight.size(), 0);
    require(weighted() || !node_.two_of_four, "2:4 sparse without weights");
    check_factors("multiplier", node_.multiplier);
    check_factors("bias", node_.bias);
    check_factors("residual multiplier", {node_.residual_multiplier});
    require(has_residual() || node_.residual_multiplier == 0, "a residual multiplier without a residual");
    for (size_t i = 0; i < node_.weight_scale.size(); ++i) {
      const float scale = node_.weight_scale[i];
      if (!std::isfinite(scale) || scale <= 0)
        fail(fmt::format("weight scale {}, number {}, is not positive and finite", scale, i));
    }
  }

  /// Returns the largest |code - zero point| that the output of `input` can have.
  int64_t magnitude(const Int8Node& input) const {
    const QParams& q = input.out;
    return std::max(q.quant_max - q.zero_point, q.zero_point - q.quant_min);
  }

  void check_weight() const {
    const int64_t per_channel = weights_per_channel();
    check_count("weights", node_.weight.size(), saturating_product({node_.shape.c, per_channel}));
    if (node_.weight_bits < 2 || node_.weight_bits > 8)
      fail(fmt::format("weights of {} bits, allowed are 2..8", node_.weight_bits));
    const int lowest = node_.weight_bits == 8 ? -127 : -(1 << (node_.weight_bits - 1));
    const int highest = (1 << (node_.weight_bits - 1)) - 1;
    const int64_t input_magnitude = magnitude(in(0));
    for (size_t k = 0; k < static_cast<size_t>(node_.shape.c); ++k) {
      const int8_t* row = node_.weight.data() + k * static_cast<size_t>(per_channel);
      const kernels::CodeRow codes = kernels::see_codes(row, static_cast<size_t>(per_channel));
      if (codes.lowest < lowest || codes.highest > highest) {
        const int8_t* first = std::find_if(row, row + per_channel, [&](int8_t w) { return w < lowest || w > highest; });
        fail(fmt::format("channel {}: weight code {}, allowed are {}..{}", k, *first, lowest, highest));
      }
      if (codes.magnitude * input_magnitude >= kAccumulatorLimit)
        fail(fmt::format("channel {}: sums can leave int32", k));
    }
  }

  void check_sparsity() const {
    const int64_t inputs = node_.op == Int8Op::linear ? in(0).shape.c : in(0).shape.c / node_.groups;
    if (inputs % 4 != 0) fail(fmt::format("2:4 sparse, but a row has {} input channels, no multiple of four", inputs));
    const int64_t rows = static_cast<int64_t>(node_.weight.size()) / inputs;
    if (const int64_t group = kernels::first_dense_group(node_.weight.data(), rows, inputs); group >= 0)
      fail(fmt::format("2:4 sparse, but more than two of the weights {} to {} are not 0", group, group + 3));
  }

  /// An engine stores what the table says, so every entry must be a code of the output, also for codes that the input
  /// cannot have.
  void check_table() const {
    require(!node_.float_output, "it gives codes, not floats");
    for (const float scale : node_.multiplier)
      if (!(scale > 0)) fail(fmt::format("a channel's scale is {}, not positive", scale));
    for (size_t i = 0; i < node_.table.size(); ++i) {
      const int code = node_.out.is_signed() ? static_cast<int8_t>(node_.table[i]) : node_.table[i];
      if (code < node_.clamp_min || code > node_.clamp_max) {
        fail(
            fmt::format("table entry {} is {}, outside the clamp [{}, {}]", i, code, node_.clamp_min, node_.clamp_max));
      }
    }
  }

  /// exponentials[0] is that of a group's largest code, so no sum is 0; the bound on all of them keeps sums within
  /// int32.
  void check_exponentials() const {
    for (size_t d = 0; d < node_.exponentials.size(); ++d) {
      const int32_t e = node_.exponentials[d];
      if (e < 0 || e > kExponentialOne || (d == 0 && e != kExponentialOne))
        fail(fmt::format("exponential {} is {}, allowed are 0..{}, the first {}", d, e, kExponentialOne,
                         kExponentialOne));
    }
  }

  void check_shape() const {
    std::vector<Shape> inputs;
    for (size_t i = 0; i < node_.inputs.size(); ++i) inputs.push_back(in(i).shape);
    const OutputShape out = output_shape(shape_attributes(node_), inputs);
    if (!out.fault.empty()) fail(out.fault);
    if (node_.shape != out.shape)
      fail(fmt::format("shape {}, its inputs give {}", to_string(node_.shape), to_string(out.shape)));
  }

  void check_operation() const {
    if (passes_codes_on(node_.op)) require(node_.out == in(0).out, "must have the scale and codes of its input");
    if (passes_codes_on(node_.op) && node_.op != Int8Op::max_pool) {
      require(node_.clamp_min == node_.out.quant_min && node_.clamp_max == node_.out.quant_max, "it cannot clamp");
    }
    if (node_.op == Int8Op::input) return;
    check_shape();
    if (weighted()) check_weight();
    if (node_.two_of_four) check_sparsity();
    if (node_.op == Int8Op::lookup) check_table();
    if (node_.op == Int8Op::softmax) check_exponentials();
    const double codes = sum_divisor(shape_attributes(node_), in(0).shape);
    require(codes * magnitude(in(0)) < kAccumulatorLimit, "sums of the pool can leave int32");
  }

  const Int8Graph& graph_;
  const Int8Node& node_;
  const size_t index_;
};

void check_outputs(const Int8Graph& graph) {
  if (graph.outputs.empty()) throw data_error(fmt::format("graph '{}' has no outputs", graph.name));
  std::set<int> outputs;
  for (const int output : graph.outputs) {
    if (output < 0 || static_cast<size_t>(output) >= graph.nodes.size()) {
      throw data_error(
          fmt::format("output {} is not one of the {} nodes of '{}'", output, graph.nodes.size(), graph.name));
    }
    const std::string& name = graph.nodes[static_cast<size_t>(output)].name;
    if (output == 0) throw data_error(fmt::format("output '{}' is nothing but the input", name));
    if (!outputs.insert(output).second) throw data_error(fmt::format("node '{}' is an output twice", name));
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].float_output && !outputs.contains(static_cast<int>(i))) {
      throw data_error(fmt::format("node {} '{}' gives floats and is no output", i, graph.nodes[i].name));
    }
  }
}

void check_class_names(const Int8Graph& graph) {
  if (graph.class_names.empty()) return;
  if (graph.boxes) {
    if (graph.class_names.size() != static_cast<size_t>(box_classes(graph)))
      throw data_error(
          fmt::format("{} class names for boxes of {} classes", graph.class_names.size(), box_classes(graph)));
    return;
  }
  if (graph.outputs.size() != 1) {
    throw data_error(
        fmt::format("class names need one output, the network has {}: {}", graph.outputs.size(), outputs_text(graph)));
  }
  const Int8Node& output = graph.nodes[static_cast<size_t>(graph.outputs.front())];
  if (graph.class_names.size() != static_cast<size_t>(output.shape.c)) {
    throw data_error(fmt::format("{} class names for the {} channels of the output '{}'", graph.class_names.size(),
                                 output.shape.c, output.name));
  }
}

void check_preprocessing(const Int8Graph& graph) {
  const Preprocessing& p = graph.preprocessing;
  const auto channels = static_cast<size_t>(graph.input_shape().c);
  if (p.mean.size() != channels || p.std.size() != channels) {
    throw data_error(
        fmt::format("preprocessing: {} means and {} stds for {} channels", p.mean.size(), p.std.size(), channels));
  }
  for (size_t c = 0; c < channels; ++c) {
    // Bounds that keep (p / 255 - mean) / std finite.
    if (!(std::abs(p.mean[c]) <= 1e6f) || !(p.std[c] >= 1e-6f && p.std[c] <= 1e6f)) {
      throw data_error(fmt::format("preprocessing: mean {} and std {} of channel {}", p.mean[c], p.std[c], c));
    }
  }
  if (p.resize < 0 || p.resize > kMaxDimension || p.crop < 0 || p.crop > kMaxDimension) {
    throw data_error(
        fmt::format("preprocessing: resize {} and crop {} are not in 0..{}", p.resize, p.crop, kMaxDimension));
  }
}

}  // namespace

void validate(const Int8Graph& graph) {
  if (graph.nodes.size() < 2 || graph.nodes.size() > static_cast<size_t>(kMaxNodes)) {
    throw data_error(fmt::format("graph '{}' has {} nodes, needs 2 to {}", graph.name, graph.nodes.size(), kMaxNodes));
  }
  std::set<std::string_view> names;
  int64_t activations = 0, operations = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Int8Node& node = graph.nodes[i];
    if (node.name.empty()) throw data_error(fmt::format("node {} has no name", i));
    if (!names.insert(node.name).second) throw data_error(fmt::format("two nodes are named '{}'", node.name));
    NodeCheck(graph, i).run();
    activations += node.shape.elements();
    int64_t more = saturating_product({static_cast<int64_t>(node.weight.size()), node.shape.h, node.shape.w});
    if (node.op == Int8Op::matmul)
      more = saturating_product(
          {node.shape.elements(), graph.nodes[static_cast<size_t>(node.inputs[0])].shape.c / node.groups});
    if (activations > kMaxActivations || more > kMaxMultiplyAdds - operations) {
      throw data_error(fmt::format("node {} '{}': the network is beyond {} activations or {} multiply-adds an image", i,
                                   node.name, kMaxActivations, kMaxMultiplyAdds));
    }
    operations += more;
  }
  check_preprocessing(graph);
  check_outputs(graph);
  if (graph.boxes) check_box_head(graph);
  check_class_names(graph);
}

}  // namespace octet
