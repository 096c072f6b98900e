// Shape inference, which is also the check of a float graph.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "src/common/error.h"
#include "src/common/saturating_product.h"
#include "src/graph/graph.h"
#include "src/graph/infer_shape.h"
#include "src/graph/limits.h"
#include "src/graph/op_traits.h"
#include "src/graph/window.h"

namespace octet {
namespace {

[[noreturn]] void fail(const Node& node, const std::string& what) {
  throw usage_error(fmt::format("node '{}' ({}): {}", node.name, op_name(node.op), what));
}

void check_inputs(const Node& node, int index) {
  if (const std::string fault = arity_fault(traits(node.op), node.inputs.size()); !fault.empty())
    fail(node, "has " + fault);
  for (const int input : node.inputs) {
    if (input < 0 || input >= index) fail(node, fmt::format("input {} is not an earlier node", input));
  }
}

void check_out_channels(const Node& node) {
  if (node.out_channels < 1 || node.out_channels > kMaxDimension) {
    fail(node, fmt::format("out_channels {} is not in 1..{}", node.out_channels, kMaxDimension));
  }
}

Shape conv_shape(const Node& node, const Shape& in) {
  check_out_channels(node);
  if (const std::string fault = window_fault(node.window, in, false); !fault.empty()) {
    fail(node, fmt::format("input {}: {}", to_string(in), fault));
  }
  if (node.groups < 1 || in.c % node.groups != 0 || node.out_channels % node.groups != 0) {
    fail(node,
         fmt::format("groups {} must divide {} input and {} output channels", node.groups, in.c, node.out_channels));
  }
  Shape out = window_output(node.window, in);
  out.c = node.out_channels;
  return out;
}

Shape pool_shape(const Node& node, const Shape& in) {
  if (const std::string fault = window_fault(node.window, in, true); !fault.empty()) {
    fail(node, fmt::format("input {}: {}", to_string(in), fault));
  }
  Shape out = window_output(node.window, in);
  out.c = in.c;
  return out;
}

Shape linear_shape(const Node& node, const Shape& in) {
  check_out_channels(node);
  if (in.h != 1 || in.w != 1) {
    fail(node, fmt::format("input {} is not flat: put a flatten or global_avg_pool before it", to_string(in)));
  }
  return {node.out_channels, 1, 1};
}

Shape flatten_shape(const Node& node, const Shape& in) {
  if (in.elements() > kMaxDimension) {
    fail(node, fmt::format("input {} has more than {} elements: pool it first", to_string(in), kMaxDimension));
  }
  return {static_cast<int>(in.elements()), 1, 1};
}

Shape subsample_shape(const Node& node, const Shape& in) {
  check_out_channels(node);
  const Window strides{.stride_h = node.window.stride_h, .stride_w = node.window.stride_w};
  if (const std::string fault = window_fault(strides, in, false); !fault.empty()) fail(node, fault);
  if (node.out_channels < in.c || (node.out_channels - in.c) % 2 != 0) {
    fail(node, fmt::format("cannot pad {} channels evenly to {}", in.c, node.out_channels));
  }
  Shape out = subsample_output(node.window, in);
  out.c = node.out_channels;
  return out;
}

Shape slice_shape(const Node& node, const Shape& in) {
  if (const std::string fault = slice_fault(node.first_channel, node.out_channels, in); !fault.empty())
    fail(node, fault);
  return {node.out_channels, in.h, in.w};
}

Shape resize_shape(const Node& node, const Shape& in) {
  if (const std::string fault = resize_fault(node.factor_h, node.factor_w, in); !fault.empty()) fail(node, fault);
  return {in.c, in.h * node.factor_h, in.w * node.factor_w};
}

Shape shuffle_shape(const Node& node, const Shape& in) {
  if (const std::string fault = shuffle_fault(node.groups, in); !fault.empty()) fail(node, fault);
  return in;
}

Shape depth_to_space_shape(const Node& node, const Shape& in) {
  if (const std::string fault = depth_to_space_fault(node.factor_h, node.factor_w, in); !fault.empty())
    fail(node, fault);
  return {in.c / (node.factor_h * node.factor_w), in.h * node.factor_h, in.w * node.factor_w};
}

Shape add_shape(const Node& node, const Shape& a, const Shape& b) {
  if (a != b) fail(node, fmt::format("shapes {} and {} differ", to_string(a), to_string(b)));
  return a;
}

Shape mul_shape(const Node& node, const Shape& a, const Shape& b) {
  if (b != a && b != Shape{a.c, 1, 1}) {
    fail(node, fmt::format("cannot multiply {} by {}: the second input must be equal or [{}, 1, 1]", to_string(a),
                           to_string(b), a.c));
  }
  return a;
}

Shape concat_shape(const Graph& graph, const Node& node) {
  Shape out = graph.nodes[static_cast<size_t>(node.inputs.front())].shape;
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    const Shape& in = graph.nodes[static_cast<size_t>(node.inputs[i])].shape;
    if (in.h != out.h || in.w != out.w) {
      fail(node, fmt::format("sizes of {} and {} differ", to_string(out), to_string(in)));
    }
    out.c += in.c;
    if (out.c > kMaxDimension) fail(node, fmt::format("more than {} channels", kMaxDimension));
  }
  return out;
}

Shape output_shape(const Graph& graph, const Node& node) {
  const auto in = [&](size_t i) -> const Shape& { return graph.nodes[static_cast<size_t>(node.inputs[i])].shape; };
  switch (node.op) {
    case Op::input:
      return node.shape;
    case Op::conv2d: {
      const Shape out = conv_shape(node, in(0));
      return node.inputs.size() == 2 ? add_shape(node, out, in(1)) : out;
    }
    case Op::linear:
      return linear_shape(node, in(0));
    case Op::max_pool:
    case Op::avg_pool:
      return pool_shape(node, in(0));
    case Op::global_avg_pool:
      return {in(0).c, 1, 1};
    case Op::flatten:
      return flatten_shape(node, in(0));
    case Op::subsample_pad:
      return subsample_shape(node, in(0));
    case Op::slice:
      return slice_shape(node, in(0));
    case Op::resize:
      return resize_shape(node, in(0));
    case Op::channel_shuffle:
      return shuffle_shape(node, in(0));
    case Op::depth_to_space:
      return depth_to_space_shape(node, in(0));
    case Op::add:
      return add_shape(node, in(0), in(1));
    case Op::mul:
      return mul_shape(node, in(0), in(1));
    case Op::concat:
      return concat_shape(graph, node);
    case Op::dropout:
      if (!(node.dropout >= 0.0f && node.dropout < 1.0f)) {
        fail(node, fmt::format("dropout {} is not in [0, 1)", node.dropout));
      }
      return in(0);
    case Op::batch_norm:
      if (!(node.epsilon > 0 && node.epsilon <= 1))
        fail(node, fmt::format("epsilon {} is not in (0, 1]", node.epsilon));
      return in(0);
    case Op::relu:
    case Op::relu6:
    case Op::requantize:
      return in(0);
    case Op::lookup:
      if (!(node.curve.slope >= 0.0f && node.curve.slope < 1.0f)) {
        fail(node, fmt::format("slope {} is not in [0, 1)", node.curve.slope));
      }
      return in(0);
  }
  fail(node, "unknown op");
}

void check_outputs(const Graph& graph) {
  std::set<int> seen;
  for (const int output : graph.outputs) {
    if (output < 0 || output >= static_cast<int>(graph.nodes.size())) {
      throw usage_error(
          fmt::format("graph '{}': output {} is not one of its {} nodes", graph.name, output, graph.nodes.size()));
    }
    const Node& node = graph.nodes[static_cast<size_t>(output)];
    if (node.op == Op::input) fail(node, "an output that is nothing but the input");
    if (!seen.insert(output).second) fail(node, "an output twice");
  }
}

}  // namespace

void infer_shape(const Graph& graph, Node& node, int index) {
  check_inputs(node, index);
  node.shape = output_shape(graph, node);
  if (const std::string fault = shape_fault(node.shape); !fault.empty()) fail(node, fault);
}

void infer_shapes(Graph& graph) {
  if (graph.nodes.empty()) throw usage_error(fmt::format("graph '{}' has no nodes", graph.name));
  if (graph.nodes.size() > static_cast<size_t>(kMaxNodes)) {
    throw usage_error(fmt::format("graph '{}' has {} nodes, more than {}", graph.name, graph.nodes.size(), kMaxNodes));
  }
  std::set<std::string_view> names;
  int64_t multiply_adds_left = kMaxMultiplyAdds;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& node = graph.nodes[i];
    if (node.name.empty()) fail(node, fmt::format("node {} has no name", i));
    if (!names.insert(node.name).second) fail(node, "two nodes of this name");
    if ((node.op == Op::input) != (i == 0)) fail(node, "the input is node 0, and only node 0");
    infer_shape(graph, node, static_cast<int>(i));
    if (has_weight(node.op)) {
      const int64_t in_channels = graph.nodes[static_cast<size_t>(node.inputs.front())].shape.c / node.groups;
      multiply_adds_left -= std::min(
          multiply_adds_left,
          saturating_product({node.shape.elements(), in_channels, node.window.kernel_h, node.window.kernel_w}));
      if (multiply_adds_left == 0) fail(node, fmt::format("more than {} multiply-adds an image", kMaxMultiplyAdds));
    }
  }
  if (graph.outputs.empty()) graph.outputs = {static_cast<int>(graph.nodes.size()) - 1};
  check_outputs(graph);
}

}  // namespace octet
