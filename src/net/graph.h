// SPDX-License-Identifier: Apache-2.0
// The float network as plain data: a list of nodes in execution order. Training walks it with LibTorch, `fuse` and
// `prepare` (src/quant) rewrite it, `convert` turns it into the Int8Graph.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/names.h"

namespace octet {

/// The functions of one value, one of which a lookup applies. The int8 network has a table of 256 codes in its place
/// (src/quant/node_constants.h).
enum class FunctionKind { silu, hard_swish, hard_sigmoid, sigmoid, tanh, gelu, leaky_relu, mish, softplus, elu };

/// The functions by the names of their operators in model.graph.
inline constexpr std::array<Named<FunctionKind>, 10> kFunctions = {{{FunctionKind::silu, "silu"},
                                                                    {FunctionKind::hard_swish, "hard_swish"},
                                                                    {FunctionKind::hard_sigmoid, "hard_sigmoid"},
                                                                    {FunctionKind::sigmoid, "sigmoid"},
                                                                    {FunctionKind::tanh, "tanh"},
                                                                    {FunctionKind::gelu, "gelu"},
                                                                    {FunctionKind::leaky_relu, "leaky_relu"},
                                                                    {FunctionKind::mish, "mish"},
                                                                    {FunctionKind::softplus, "softplus"},
                                                                    {FunctionKind::elu, "elu"}}};

inline constexpr float kLeakySlope = 0.01f;  ///< PyTorch's default

/// A function of one value with its parameter.
struct Function {
  FunctionKind kind = FunctionKind::silu;
  float slope = kLeakySlope;  ///< leaky_relu: the factor of negative values
};

std::optional<FunctionKind> find_function(std::string_view name);  ///< none if no function is called so

/// Describes a function for people and exporters: "silu", "leaky_relu 0.01".
std::string function_text(const Function& function);

/// Returns f(x), computed in double by PyTorch's formulas (gelu with erf).
double evaluate(const Function& function, double x);

/// Whether f(x) >= 0 for every x. For x >= 0 all functions give f(x) >= 0.
bool never_negative(FunctionKind function);

/// PyTorch's default of what is added to the variance in a BatchNorm.
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
  flatten,          ///< [N, C, H, W] -> [N, C*H*W, 1, 1]; a following linear's weight columns are in CHW order
  linear,           ///< weight [K, C], bias [K]
  dropout,          ///< identity outside training
  subsample_pad,    ///< every stride-th pixel, and as many zero channels before the others as behind them: the option A
                    ///< shortcut of He et al. 2015
  requantize,       ///< identity; the int8 network gives the same values by other codes (made by prepare)
  mul,              ///< two inputs of one shape, or the second [C, 1, 1]: a factor for each channel
  lookup,           ///< applies a Function to each value
  slice,            ///< out_channels channels from first_channel on
  resize,           ///< repeats every pixel factor_h x factor_w times
  channel_shuffle,  ///< channel c is the input's channel c % groups * (C / groups) + c / groups
  depth_to_space,   ///< turns every pixel into factor_h x factor_w pixels: pixel (i, j) has the channels of part
                    ///< i * factor_w + j. Behind a convolution this is a transposed convolution
  resize_bilinear,  ///< factor_h x factor_w times as many pixels, interpolated between the centres of pixels
  matmul,  ///< multiplies the matrices of inputs a and b in each group of channels, and multiplies by `scale`. Rows are
           ///< a's pixels. transposed: output channel m is the dot product of a's pixel with b's pixel m, over the
           ///< channels of the group. Else a's channels are factors of b's pixels, and the output has b's channels
  softmax,  ///< over the channels of each group
  prelu,    ///< x, times weight [groups] where x < 0: one slope for the channels of each group
};

const std::vector<Op>& all_ops();
std::string_view op_name(Op op);         ///< "conv2d", as in recipes and checkpoints
Op op_from_name(std::string_view name);  ///< throws Error(usage) naming the nearest operator

bool has_weight(Op op);  ///< conv2d, linear. More about operators: src/net/op_traits.h

/// Channels, height and width of an activation for one image.
struct Shape {
  int c = 0, h = 0, w = 0;
  long elements() const { return static_cast<long>(c) * h * w; }
  bool operator==(const Shape&) const = default;
};

/// The number of pixels added on each side of an image.
struct Padding {
  int top = 0, left = 0, bottom = 0, right = 0;
  bool is_even() const { return top == bottom && left == right; }
  bool operator==(const Padding&) const = default;
};

/// Returns a padding that is equal on opposite sides.
inline Padding even_padding(int vertical, int horizontal) { return {vertical, horizontal, vertical, horizontal}; }

/// The window of a convolution or pool. Along each axis it gives
/// (input + both pads - dilation * (kernel - 1) - 1) / stride + 1 outputs, rounded down.
struct Window {
  int kernel_h = 1, kernel_w = 1;
  int stride_h = 1, stride_w = 1;
  Padding pad;
  int dilation_h = 1, dilation_w = 1;
  bool operator==(const Window&) const = default;
};

enum class Activation { none, relu, relu6 };

struct Node {
  std::string name;  ///< unique; begins the names of its parameters ("layer1.0.conv1.weight")
  Op op = Op::input;
  std::vector<int> inputs;         ///< indices of earlier nodes; after fuse, a conv2d's second input is its residual
  Window window;                   ///< conv2d, max_pool, avg_pool; subsample_pad uses its strides
  int out_channels = 0;            ///< conv2d, linear, subsample_pad, slice
  int first_channel = 0;           ///< slice
  int factor_h = 1, factor_w = 1;  ///< resize, depth_to_space, resize_bilinear
  int groups = 1;                  ///< conv2d, channel_shuffle; matmul, softmax: the heads of attention; prelu
  bool transposed = false;         ///< matmul
  float scale = 1.0f;              ///< matmul
  bool bias = false;               ///< conv2d, linear
  float dropout = 0.0f;            ///< dropout: the probability
  Function function;               ///< lookup
  double epsilon = kBatchNormEpsilon;  ///< batch_norm; after fuse also a conv2d or linear with a batch_norm
  Shape shape;                         ///< of the output; filled by infer_shapes

  // Filled by fuse (src/quant): out = activation(batch_norm(conv(x)) + residual).
  std::string batch_norm;  ///< name of the folded BatchNorm; empty: none
  Activation activation = Activation::none;
};

struct Graph {
  std::string name;          ///< "resnet20"
  std::vector<Node> nodes;   ///< nodes[0] is the input
  std::vector<int> outputs;  ///< nodes, in the order in which a Program gives them; infer_shapes fills an empty list
                             ///< with the last node
  std::vector<std::string> file_outputs;  ///< of a network from an ONNX file: what the file calls the outputs

  /// Returns the classes of a classifier, which has one output [classes, 1, 1]. Throws Error(usage) naming the outputs
  /// of any other network.
  int classes() const;
};

/// Fills the shape of every node from nodes[0].shape and checks the graph: order, number of inputs, channels, window
/// sizes, unique names, outputs. Throws Error(usage) naming the node and both shapes.
void infer_shapes(Graph& graph);

/// Fills the shape of one node, which is or becomes graph.nodes[index], from the shapes of the nodes before it; for
/// code that needs shapes while it builds a graph. Throws like infer_shapes().
void infer_shape(const Graph& graph, Node& node, int index);

/// Returns by node how often nodes read its output; a node that reads it twice counts twice.
std::vector<int> reader_counts(const Graph& graph);

inline constexpr int kUser = -1;  ///< stands for the user among the nodes that read an output of the graph

/// Returns by node the nodes that read its output, in order; kUser before them for an output of the graph.
std::vector<std::vector<int>> readers_of(const Graph& graph);

/// Returns by node the last node that reads its output: -1 if none does, the number of nodes for outputs of the graph.
std::vector<int> last_readers(const Graph& graph);

/// Returns the multiply-adds of one image in convolutions, linear layers and matmuls.
long multiply_adds(const Graph& graph);

/// A parameter or buffer of the float network, with its PyTorch name and shape.
struct ParameterSpec {
  enum class Kind { conv_weight, linear_weight, bias, bn_weight, bn_bias, bn_mean, bn_var, slope };
  std::string name;
  std::vector<long> shape;
  Kind kind;
  bool trainable() const { return kind != Kind::bn_mean && kind != Kind::bn_var; }
};

bool has_batch_norm(const Graph& graph);  ///< as a node of its own, not fused

/// Returns all parameters and buffers in the order of the nodes, before as after fuse. num_batches_tracked is not one.
std::vector<ParameterSpec> parameters(const Graph& graph);

}  // namespace octet
