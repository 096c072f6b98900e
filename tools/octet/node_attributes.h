// What `octet inspect` says about a node beside its name, inputs and shape: window, groups, factor, channels.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "src/graph/op_traits.h"

namespace octet::cli {

/// Of a node of the float network or of the int8 one.
struct NodeAttributes {
  const OpTraits& op;
  Window window;
  int groups, factor_h, factor_w, first_channel, channels;
  bool transposed;
};

template <typename AnyNode>
NodeAttributes attributes_of(const AnyNode& node) {
  return {traits(node.op), node.window,        node.groups,  node.factor_h,
          node.factor_w,   node.first_channel, node.shape.c, node.transposed};
}

/// "3x3/2 pad 1 depthwise": what is as it is without saying is left out.
std::string text_of(const NodeAttributes& node);

/// Adds the keys that a checkpoint has for them; the window's pad is top, left, bottom, right.
void add_attributes(const NodeAttributes& node, nlohmann::json& to);

}  // namespace octet::cli
