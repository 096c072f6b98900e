// The float network as plain data: a list of nodes in execution order. Training walks it with LibTorch (src/model),
// `fuse` and `prepare` (src/quant) rewrite it, `convert` turns it into the Int8Graph. No torch types here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/graph/function.h"

namespace octet {

/// Added to the variance of a BatchNorm where its node says nothing else: PyTorch's default.
inline constexpr double kBatchNormEpsilon = 1e-5;

enum class Op {
  input,       ///< the image; always node 0
  conv2d,      ///< weight [K, C/groups, R, S], bias [K] optional
  batch_norm,  ///< weight, bias, running_mean, running_var [C]
  relu,
  relu6,
  add,     ///< two inputs of one shape
  concat,  ///< along channels
  max_pool,
  avg_pool,         ///< zeros of the padding count (count_include_pad)
  global_avg_pool,  ///< [N, C, H, W] -> [N, C, 1, 1]
  flatten,  ///< [N, C, H, W] -> [N, C*H*W, 1, 1]; parameters of a following linear are in CHW order, as in PyTorch
  linear,   ///< weight [K, C], bias [K]
  dropout,  ///< identity outside training
  subsample_pad,    ///< option A shortcut (He et al. 2015): every stride-th pixel, zero channels added evenly on both
                    ///< sides
  requantize,       ///< identity; in the quantized network another set of codes for the same values (made by prepare)
  mul,              ///< two inputs of one shape, or the second [C, 1, 1]: a factor for each channel
  lookup,           ///< a function of each value on its own: silu, hard_swish, ... (src/graph/function.h)
  slice,            ///< out_channels channels from first_channel on
  resize,           ///< every pixel factor_h x factor_w times: to the nearest, by whole factors
  channel_shuffle,  ///< channel c is channel c % groups * (C / groups) + c / groups of the input: groups take turns
  depth_to_space,   ///< every pixel becomes factor_h x factor_w: pixel (i, j) of them is part i * factor_w + j of its
                    ///< channels. Behind a convolution it is a transposed one
  resize_bilinear,  ///< factor_h x factor_w times as high and wide, with straight lines between the centres of pixels
  matmul,  ///< of two images a and b, in each group of channels on its own, times `scale`: every pixel of a by all of
           ///< b. transposed: [K in each group] each, the dot product of a's pixel with each of b's M pixels, which are
           ///< the channels of the group. Else a has b's M pixels as the channels of a group, factors of b's pixels
  softmax,  ///< over the channels of each group
};

const std::vector<Op>& all_ops();
std::string_view op_name(Op op);         ///< "conv2d", as written in recipes and checkpoints
Op op_from_name(std::string_view name);  ///< throws Error(usage) naming the nearest op

bool has_weight(Op op);  ///< conv2d, linear. More about operators: src/graph/op_traits.h

/// Channels, height, width of one image's activation.
struct Shape {
  int c = 0, h = 0, w = 0;
  long elements() const { return static_cast<long>(c) * h * w; }
  bool operator==(const Shape&) const = default;
};

/// Pixels added on each side of an image.
struct Padding {
  int top = 0, left = 0, bottom = 0, right = 0;
  bool is_even() const { return top == bottom && left == right; }
  bool operator==(const Padding&) const = default;
};

/// As many before as behind.
inline Padding even_padding(int vertical, int horizontal) { return {vertical, horizontal, vertical, horizontal}; }

/// Geometry of a convolution or pooling window. output = (input + both pads - dilation*(kernel-1) - 1) / stride + 1,
/// rounded down.
struct Window {
  int kernel_h = 1, kernel_w = 1;
  int stride_h = 1, stride_w = 1;
  Padding pad;
  int dilation_h = 1, dilation_w = 1;
  bool operator==(const Window&) const = default;
};

enum class Activation { none, relu, relu6 };

struct Node {
  std::string name;  ///< unique; prefix of its parameters ("layer1.0.conv1" owns "layer1.0.conv1.weight")
  Op op = Op::input;
  std::vector<int> inputs;         ///< indices of earlier nodes; after fuse, a conv2d's second input is its residual
  Window window;                   ///< conv2d, max_pool, avg_pool; subsample_pad uses its strides
  int out_channels = 0;            ///< conv2d, linear, subsample_pad, slice
  int first_channel = 0;           ///< slice
  int factor_h = 1, factor_w = 1;  ///< resize, depth_to_space, resize_bilinear
  int groups = 1;                  ///< conv2d, channel_shuffle; matmul, softmax: the heads of attention
  bool transposed = false;         ///< matmul
  float scale = 1.0f;              ///< matmul
  bool bias = false;               ///< conv2d, linear
  float dropout = 0.0f;            ///< probability
  Curve curve;                     ///< lookup
  double epsilon = kBatchNormEpsilon;  ///< batch_norm; after fuse of a conv2d or linear, for its batch_norm
  Shape shape;                         ///< of the output; filled by infer_shapes

  // Filled by fuse (src/quant): out = activation(batch_norm(conv(x)) + residual).
  std::string batch_norm;  ///< name of the folded BatchNorm; empty: none
  Activation activation = Activation::none;
};

struct Graph {
  std::string name;          ///< "resnet20"
  std::vector<Node> nodes;   ///< nodes[0] is the input
  std::vector<int> outputs;  ///< nodes, in the order a Program gives them; empty before infer_shapes: the last node

  /// Of a classifier: one output, [classes, 1, 1]. For whoever needs logits; throws Error(usage) naming the outputs of
  /// any other network.
  int classes() const;
};

/// Fills every node's shape from nodes[0].shape and checks the graph (order, arity, channels, window sizes, unique
/// names, outputs). Throws Error(usage) that names the node and both shapes.
void infer_shapes(Graph& graph);

/// Multiply-adds of one image through convolutions, linears and matmuls.
long multiply_adds(const Graph& graph);

/// A parameter or buffer of the float network, with its PyTorch name and shape.
struct ParameterSpec {
  enum class Kind { conv_weight, linear_weight, bias, bn_weight, bn_bias, bn_mean, bn_var };
  std::string name;
  std::vector<long> shape;
  Kind kind;
  bool trainable() const { return kind != Kind::bn_mean && kind != Kind::bn_var; }
};

/// All parameters and buffers in graph order (num_batches_tracked is not kept). Works before and after fuse.
std::vector<ParameterSpec> parameters(const Graph& graph);

}  // namespace octet
