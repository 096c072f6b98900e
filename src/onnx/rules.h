// What becomes of each ONNX operator. A rule reads its node and says what the node's output stands for.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "src/onnx/node_reader.h"

namespace octet {

using Rule = void (*)(NodeReader&);

/// By operator; what is not here is refused by its name.
const std::map<std::string_view, Rule>& rules();

/// What to do about an operator of a quantized network in another form than QDQ (QLinearConv, ConvInteger); "": it is
/// none of these.
std::string cure_of_other_form(std::string_view op);

namespace onnx_rules {

// layers.cpp: what has weights
void conv(NodeReader& node);
void batch_normalization(NodeReader& node);
void gemm(NodeReader& node);
void mat_mul(NodeReader& node);
bool is_bias(NodeReader& node, int bias);   ///< whether an Add of the constant `bias` can be its layer's bias
void add_bias(NodeReader& node, int bias);  ///< that Add

/// A bias, factor or statistic: one number a channel, or one for all.
std::vector<float> per_channel(NodeReader& node, int input, int64_t channels);

/// x times factors[channel] plus shifts[channel] (empty: nothing), by a depthwise 1x1 convolution.
OnnxValue scaled_channels(Network& network, const OnnxValue& x, const std::vector<float>& factors,
                          const std::vector<float>& shifts, const std::vector<std::string>& names);

// transposed.cpp
void conv_transpose(NodeReader& node);
void depth_to_space(NodeReader& node);
void space_to_depth(NodeReader& node);

// windows.cpp
void pad(NodeReader& node);
void max_pool(NodeReader& node);
void average_pool(NodeReader& node);
void global_average_pool(NodeReader& node);
void reduce_mean(NodeReader& node);

/// The window of a Conv or pool over `x`, its auto_pad and the Pad before it included.
Window read_window(NodeReader& node, const OnnxValue& x, const std::vector<int64_t>& kernel);

// functions.cpp: of one value, and products
void sigmoid(NodeReader& node);
void hard_sigmoid(NodeReader& node);
void hard_swish(NodeReader& node);
void tanh(NodeReader& node);
void gelu(NodeReader& node);
void erf(NodeReader& node);
void leaky_relu(NodeReader& node);
void mul(NodeReader& node);
void div(NodeReader& node);
void sub(NodeReader& node);
void add_number(NodeReader& node, int number);  ///< an Add whose input `number` is one number, or one a channel
/// A layer that gives x with the factor and the shift that wait in it.
OnnxValue with_numbers_applied(Network& network, const OnnxValue& x, const std::vector<std::string>& names);
bool clip_of_hard_sigmoid(NodeReader& node);  ///< Clip 0..6 of x + 3, of which this is 6 times the hard_sigmoid

// quantization.cpp: QuantizeLinear and DequantizeLinear
void quantize_linear(NodeReader& node);
void dequantize_linear(NodeReader& node);
void clip_codes(NodeReader& node);  ///< a Clip between the two
/// In a quantized network: whether an Add of the constant input `constant` adds a number a channel.
bool is_shift(NodeReader& node, int constant);
void add_shift(NodeReader& node, int constant);  ///< that Add, behind any node
/// In a quantized network: the bounds wait for the QuantizeLinear behind.
void bound(NodeReader& node, float low, float high);
/// The scales of weights, input `input`, one for each of `outputs` indices along `axis`.
std::vector<float> weight_scales(NodeReader& node, int input, int64_t axis, int64_t outputs);

// elementwise.cpp
void relu(NodeReader& node);
void clip(NodeReader& node);
void add(NodeReader& node);
void concat(NodeReader& node);
void dropout(NodeReader& node);
void identity(NodeReader& node);
void softmax(NodeReader& node);

// attention.cpp: activations in heads
int64_t axis_of_channels(const OnnxValue& heads);
bool reshape_to_heads(NodeReader& node, const OnnxValue& x, std::vector<int64_t> to);  ///< false: `to` are no heads
void reshape_heads(NodeReader& node);
/// Times `factor`, which the product of two that is input `product` takes as its own, or a copy of it where other nodes
/// read it without the factor; false: it is none, or in a QDQ file a copy would have no scale.
bool scale_product(NodeReader& node, int product, double factor);
bool swap_pixels_and_channels(NodeReader& node);  ///< a Transpose of heads; false: of something else
void split_heads(NodeReader& node);
void matmul_of_heads(NodeReader& node);
void softmax_of_heads(NodeReader& node);
/// `count` channels of each head from `first` on, in a node of that name.
OnnxValue channels_of_heads(NodeReader& node, const OnnxValue& x, int64_t first, int64_t count,
                            const std::string& name);

// reshaping.cpp: activations change their shape in the ways that a classifier's head needs
void flatten(NodeReader& node);
void reshape(NodeReader& node);
void squeeze(NodeReader& node);
void unsqueeze(NodeReader& node);

// shape_arithmetic.cpp: what is known when the file is read
void constant(NodeReader& node);
void shape(NodeReader& node);
void gather(NodeReader& node);
void slice(NodeReader& node);
void cast(NodeReader& node);
void constant_of_shape(NodeReader& node);
void arithmetic(NodeReader& node);  ///< Add, Sub, Mul, Div of integers
void concat_integers(NodeReader& node);
void reshape_constant(NodeReader& node);  ///< Reshape, Squeeze, Unsqueeze of a constant
void transpose(NodeReader& node);         ///< of a matrix of weights, in a channel shuffle or attention

// picks.cpp: activations are copied in part, or more than once
void slice_activation(NodeReader& node);
/// Every stride-th row and column of input 0, and channels of zeros, half of them before and half behind the others.
OnnxValue subsample(NodeReader& node, const OnnxValue& x, int stride_h, int stride_w, int64_t more_channels);
/// Of each window `taps` of its pixels, counted row by row, side by side as channels: a convolution of ones, which
/// gives codes as they are.
OnnxValue pick_pixels(NodeReader& node, const OnnxValue& x, const Window& window, const std::vector<int>& taps,
                      const std::vector<std::string>& names);
void split(NodeReader& node);
/// A Split of `channels`: each output with a name is part(first, size, name), `size` channels from `first` on.
void split_channels(NodeReader& node, int64_t channels,
                    const std::function<OnnxValue(int64_t first, int64_t size, const std::string& name)>& part);
void resize(NodeReader& node);

/// `index` counted from the end when negative, within 0..size: a bound of Slice.
int64_t clamped(int64_t index, int64_t size);

/// `axis` counted from the end when negative; fails unless it is in 0..rank-1.
int64_t positive_axis(NodeReader& node, int64_t axis, int64_t rank);

/// Axes of Squeeze, Unsqueeze, ReduceMean: an input since some opset, an attribute before.
std::vector<int64_t> read_axes(NodeReader& node, int64_t rank);

}  // namespace onnx_rules
}  // namespace octet
