// SPDX-License-Identifier: Apache-2.0
// The rules by which ONNX operators are imported. A rule reads its node, by a NodeReader, and sets what the node's
// outputs stand for.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/net/onnx/node_reader.h"

namespace octet {

using Rule = void (*)(NodeReader&);

/// Returns the rules by the names of their operators. All other operators are refused.
const std::map<std::string_view, Rule>& rules();

/// Returns what to do if a quantized network is in another form than QDQ and therefore has this operator (QLinearConv,
/// ConvInteger), or "" for all other operators.
std::string cure_of_other_form(std::string_view op);

/// Why LayerNormalization and its relatives are refused.
inline constexpr const char* kNoNormalization =
    "divides by a deviation of each image or pixel, which no integer operator of octet does: keep this network in "
    "float, "
    "or train it with BatchNormalization in its place";

namespace onnx_rules {

// layers.cpp: operators with weights
void conv(NodeReader& node);
void batch_normalization(NodeReader& node);
void gemm(NodeReader& node);
void mat_mul(NodeReader& node);
/// Whether an Add can become the bias of the layer before it; input `bias` is a constant. add_bias() makes it so.
bool is_bias(NodeReader& node, int bias);
void add_bias(NodeReader& node, int bias);

/// Returns the weights of a convolution over x as [K, C, R, S]; over rows [N, C, W] the file has [K, C, S].
Constant filters(NodeReader& node, const OnnxValue& x);

/// Returns a constant input as one number for each channel; the file may give one for all.
std::vector<float> per_channel(NodeReader& node, int input, int64_t channels);

/// Appends a depthwise 1x1 convolution that computes factors[c] * x + shifts[c] for each channel c. No shifts: no bias.
OnnxValue scaled_channels(Network& network, const OnnxValue& x, const std::vector<float>& factors,
                          const std::vector<float>& shifts, const std::vector<std::string>& names);

// transposed.cpp: operators that move pixels to channels or back
void conv_transpose(NodeReader& node);
void depth_to_space(NodeReader& node);
void space_to_depth(NodeReader& node);

// windows.cpp
void pad(NodeReader& node);
void max_pool(NodeReader& node);
void average_pool(NodeReader& node);
void global_average_pool(NodeReader& node);
void global_max_pool(NodeReader& node);
void reduce_mean(NodeReader& node);

/// Reads the window of a Conv or pool over `x`, including auto_pad and the Pad before it.
Window read_window(NodeReader& node, const OnnxValue& x, const std::vector<int64_t>& kernel);

// functions.cpp: functions of one value, and products
void sigmoid(NodeReader& node);
void hard_sigmoid(NodeReader& node);
void hard_swish(NodeReader& node);
void tanh(NodeReader& node);
void neg(NodeReader& node);
void pow(NodeReader& node);
void gelu(NodeReader& node);
void erf(NodeReader& node);
void leaky_relu(NodeReader& node);
void mish(NodeReader& node);
void softplus(NodeReader& node);
void elu(NodeReader& node);
void prelu(NodeReader& node);
void mul(NodeReader& node);
void div(NodeReader& node);
void sub(NodeReader& node);
void add_number(NodeReader& node, int number);  ///< an Add whose input `number` is one number, or one for each channel
/// Appends a layer that applies the factor and the shift of x.
OnnxValue with_numbers_applied(Network& network, const OnnxValue& x, const std::vector<std::string>& names);
/// Imports min(max(x, low), high) of input i as a hard_sigmoid between two numbers. only_gate: returns false if it
/// would need a layer before it, as all do but low..high of x + 3 that are 0..6.
bool limit_to_range(NodeReader& node, int i, double low, double high, bool only_gate);
/// Imports max(x, bound) of input i, or min(x, bound), as a relu between two numbers.
void limit_one_side(NodeReader& node, int i, double bound, bool is_lowest);

// quantization.cpp: QuantizeLinear and DequantizeLinear
void quantize_linear(NodeReader& node);
void dequantize_linear(NodeReader& node);
void clip_codes(NodeReader& node);  ///< a Clip of codes
/// Whether an Add in a quantized network adds one number for each channel, its input `constant`. add_shift() imports
/// it.
bool is_shift(NodeReader& node, int constant);
void add_shift(NodeReader& node, int constant);
/// Sets the bounds of a Relu or Clip of input i in a quantized network, for the next QuantizeLinear.
void bound(NodeReader& node, int i, float low, float high);
/// Returns the scales of the weights that are input `input`, one for each of `outputs` indices along `axis`.
std::vector<float> weight_scales(NodeReader& node, int input, int64_t axis, int64_t outputs);

// elementwise.cpp
void relu(NodeReader& node);
void clip(NodeReader& node);
void extremum(NodeReader& node);
void sum(NodeReader& node);
void add(NodeReader& node);
void concat(NodeReader& node);
void dropout(NodeReader& node);
void identity(NodeReader& node);
void softmax(NodeReader& node);

// attention.cpp: activations in heads (OnnxValue::heads)
int64_t axis_of_channels(const OnnxValue& heads);
/// Imports a Reshape to heads. Returns false if `to` is not the shape of heads of x.
bool reshape_to_heads(NodeReader& node, const OnnxValue& x, std::vector<int64_t> to);
void reshape_heads(NodeReader& node);
/// Multiplies the matmul that is input `product` by a factor: the matmul itself, or a copy of it if other nodes read it
/// without the factor. Returns false if it is no matmul, or if a copy is needed in a QDQ file, which has no scale for
/// it.
bool scale_product(NodeReader& node, int product, double factor);
/// Imports a Transpose of heads. Returns false if the input is not in heads.
bool swap_pixels_and_channels(NodeReader& node);
void split_heads(NodeReader& node);
void matmul_of_heads(NodeReader& node);
void softmax_of_heads(NodeReader& node);
/// Returns `count` channels of each head from `first` on, in a node called `name`.
OnnxValue channels_of_heads(NodeReader& node, const OnnxValue& x, int64_t first, int64_t count,
                            const std::string& name);

// reshaping.cpp: changes of shape that a classifier's head needs
void flatten(NodeReader& node);
void reshape(NodeReader& node);
void squeeze(NodeReader& node);
void unsqueeze(NodeReader& node);

// shape_arithmetic.cpp: values that are computed while the file is read
void constant(NodeReader& node);
void shape(NodeReader& node);
void gather(NodeReader& node);
void slice(NodeReader& node);
void cast(NodeReader& node);
void constant_of_shape(NodeReader& node);
void arithmetic(NodeReader& node);  ///< Add, Sub, Mul, Div of integers
void concat_integers(NodeReader& node);
void reshape_constant(NodeReader& node);  ///< Reshape, Squeeze, Unsqueeze of a constant
void transpose(NodeReader& node);         ///< Transpose of a matrix of weights, in a channel shuffle or in attention

// picks.cpp: copies of parts of activations, or several copies
void slice_activation(NodeReader& node);
void gather_channels(NodeReader& node);
/// Appends a copy of every stride-th row and column of x, with channels of zeros, half of them before the others and
/// half behind them.
OnnxValue subsample(NodeReader& node, const OnnxValue& x, int stride_h, int stride_w, int64_t more_channels);
/// Appends a convolution with weights 0 and 1 that copies, for each channel, the pixels `taps` of every window, counted
/// row by row, as consecutive channels. It copies codes unchanged.
OnnxValue pick_pixels(NodeReader& node, const OnnxValue& x, const Window& window, const std::vector<int>& taps,
                      const std::vector<std::string>& names);
void split(NodeReader& node);
/// Imports a Split of `channels`: each output with a name becomes part(first, size, name), which returns `size`
/// channels from `first` on.
void split_channels(NodeReader& node, int64_t channels,
                    const std::function<OnnxValue(int64_t first, int64_t size, const std::string& name)>& part);
void resize(NodeReader& node);

/// Returns a bound of a Slice, counted from the end if negative, clamped to 0..size.
int64_t clamped(int64_t index, int64_t size);

/// Returns how many axes stand behind the channels in the file.
size_t axes_behind_channels(const OnnxValue& x);

/// Returns an axis, counted from the end if negative. Fails unless it is in 0..rank-1.
int64_t positive_axis(NodeReader& node, int64_t axis, int64_t rank);

/// Reads the axes of Squeeze, Unsqueeze or ReduceMean, which are an attribute in older opsets and an input in newer
/// ones.
std::vector<int64_t> read_axes(NodeReader& node, int64_t rank);

}  // namespace onnx_rules
}  // namespace octet
