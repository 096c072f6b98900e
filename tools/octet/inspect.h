// SPDX-License-Identifier: Apache-2.0
// What the two forms of `octet inspect` share: a node's attributes besides its name, inputs and shape.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

#include "src/net/op_traits.h"
#include "tools/octet/commands.h"

namespace octet::cli {

/// The attributes of a node of the float or the int8 network.
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

/// Returns for example "3x3/2 pad 1 depthwise"; default values are left out.
std::string text_of(const NodeAttributes& node);

/// Adds the attributes with the keys of a checkpoint; the window's pad is top, left, bottom, right.
void add_attributes(const NodeAttributes& node, nlohmann::json& to);

/// octet inspect FILE.onnx: prints the network as it would be imported, or throws why it cannot be. `outputs` is a
/// recipe's model.outputs, `image_size` that of import_onnx().
ExitCode inspect_onnx(const Common& common, const std::string& path, const std::vector<std::string>& outputs,
                      int image_size);

/// octet inspect FILE.onnx --rules tensorrt: prints which of TensorRT's rules a quantized file breaks. Exit code 3 if
/// any.
ExitCode inspect_tensorrt_rules(const Common& common, const std::string& path);

}  // namespace octet::cli
