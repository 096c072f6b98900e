// What follows from an operator's attributes, by one rule for the float and the int8 graph: the shape of its output,
// and by what its sum of codes is divided.
#pragma once

#include <span>
#include <string>

#include "src/graph/int8_graph.h"

namespace octet {

/// What an operator's output shape follows from, beside its inputs. Points into the node.
struct ShapeAttributes {
  Op op;
  const Window& window;
  int out_channels;  ///< conv2d, linear, subsample_pad, slice
  int first_channel, factor_h, factor_w, groups;
  bool transposed;  ///< matmul
};

ShapeAttributes shape_attributes(const Node& node);
ShapeAttributes shape_attributes(const Int8Node& node);  ///< out_channels: those of the shape it says it has

/// A shape, or why there is none.
struct OutputShape {
  Shape shape;
  std::string fault;  ///< "": none
};

/// Of any operator but the input, whose shape is given. `inputs`: their shapes, as many as the operator takes. The
/// shape may still be beyond the bounds of shape_fault() (src/graph/window.h).
OutputShape output_shape(const ShapeAttributes& node, std::span<const Shape> inputs);

/// What makes a mean of a node's sum of codes: the pixels of an average pool's window, of a global one those of its
/// input `in`, the sum of a bilinear resize's weights; 1 for all others.
double sum_divisor(const ShapeAttributes& node, const Shape& in);

}  // namespace octet
