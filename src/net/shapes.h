// SPDX-License-Identifier: Apache-2.0
// The shape of each operator's output, by one rule for the float and the int8 network, and the bounds of all shapes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "src/net/graph.h"
#include "src/net/int8_graph.h"

namespace octet {

// Bounds on networks read from files or recipes, so that no product of sizes overflows and no hostile file makes octet
// allocate absurd amounts of memory. They are far above any network that octet is meant for.
inline constexpr int kMaxDimension = 1 << 16;                  ///< channels, height, width, kernel, stride, ...
inline constexpr int64_t kMaxElements = int64_t{1} << 26;      ///< of one activation, for one image
inline constexpr int64_t kMaxActivations = int64_t{1} << 31;   ///< elements of all activations, for one image
inline constexpr int64_t kMaxMultiplyAdds = int64_t{1} << 41;  ///< for one image
inline constexpr int kMaxNodes = 1 << 14;

/// The longest sum of a matmul: this many products of 255 * 255 stay below 2^31.
inline constexpr int kMaxMatmulTerms = 33025;

/// The most channels in a group of a softmax: this many times kExponentialOne stays below 2^31.
inline constexpr int kMaxSoftmaxChannels = 65535;

/// "[16, 32, 32]".
std::string to_string(const Shape& shape);

/// Returns what is wrong with a shape, or "": every dimension must be in 1..kMaxDimension, and there may be at most
/// kMaxElements elements.
std::string shape_fault(const Shape& shape);

/// Returns what is wrong with a window of operator `op` over an image of in.h x in.w pixels, or "". Pooling windows
/// have no dilation and a padding of at most half the kernel (a max_pool's may be larger behind the image), and each
/// contains at least one pixel of the image.
std::string window_fault(const Window& window, const Shape& in, Op op);

/// Returns the output's height and width for a window without fault; c is 0.
Shape window_output(const Window& window, const Shape& in);

/// Returns the output's height and width of a subsample_pad, which takes every stride-th pixel from the first; c is 0.
Shape subsample_output(const Window& window, const Shape& in);

/// The attributes of a node that its output's shape depends on. Refers to the node's window.
struct ShapeAttributes {
  Op op;
  const Window& window;
  int out_channels;  ///< conv2d, linear, subsample_pad, slice
  int first_channel, factor_h, factor_w, groups;
  bool transposed;  ///< matmul
};

ShapeAttributes shape_attributes(const Node& node);
ShapeAttributes shape_attributes(const Int8Node& node);  ///< out_channels: those of the node's own shape

/// A shape, or why there is none.
struct OutputShape {
  Shape shape;
  std::string fault;  ///< "": none
};

/// Returns the output's shape of any operator but the input. `inputs` are the shapes of its inputs, as many as the
/// operator takes. The result may still be beyond the bounds that shape_fault() checks.
OutputShape output_shape(const ShapeAttributes& node, std::span<const Shape> inputs);

/// Returns the divisor that turns a node's sum of codes into a mean: the pixels of an average pool's window, the pixels
/// of a global one's input `in`, the sum of the weights of a bilinear resize; 1 for all others.
double sum_divisor(const ShapeAttributes& node, const Shape& in);

/// Describes the outputs of a Graph or Int8Graph for messages: "'fc' [10, 1, 1], 'mask' [2, 64, 64]". For an Int8Graph
/// it also says whether they are float32 or codes.
template <typename Network>
std::string outputs_text(const Network& network) {
  std::string text;
  for (const int output : network.outputs) {
    const auto& node = network.nodes[static_cast<size_t>(output)];
    text += (text.empty() ? "'" : ", '") + node.name + "' ";
    if constexpr (std::is_same_v<Network, Int8Graph>) text += node.float_output ? "float32 " : "codes ";
    text += to_string(node.shape);
  }
  return text;
}

}  // namespace octet
