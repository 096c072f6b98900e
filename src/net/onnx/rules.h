// SPDX-License-Identifier: Apache-2.0
// The rules by which ONNX operators are imported. A rule reads its node, by a NodeReader, and sets what the node's
// outputs stand for.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/net/onnx/network.h"

namespace octet {

/// A form that octet has not. `cure` is what to do about it wherever it stands in the network.
class OnnxRefusal : public Error {
 public:
  OnnxRefusal(const Error& error, std::string cure) : Error(error), cure(std::move(cure)) {}
  std::string cure;  ///< "; change it ...", to be added to the message
};

/// Gives a rule the inputs and attributes of its node one by one, and refuses what no rule took. Input functions differ
/// in what they accept (OnnxValue); all fail for a missing input.
class NodeReader {
 public:
  NodeReader(const onnx::NodeProto& node, Network& network) : node_(node), network_(network) {}

  const std::string& op() const { return node_.op_type(); }
  int opset() const { return network_.file().opset; }
  std::string label() const { return node_label(node_); }
  [[noreturn]] void fail(const std::string& what) const;  ///< `what` names the cure
  /// Throws OnnxRefusal for a form that octet has not. cure: "; ..."; "": what can be done about any form.
  [[noreturn]] void refuse(const std::string& what, const std::string& cure = "") const;
  [[noreturn]] void invalid(const std::string& what) const;  ///< for what ONNX forbids; names the cure

  int inputs() const { return node_.input_size(); }
  bool has_input(int i) const { return i < node_.input_size() && !node_.input(i).empty(); }
  const OnnxValue& input(int i);                ///< any value
  const OnnxValue& activation(int i);           ///< an activation as it is: no factor, bounds, padding or heads
  const OnnxValue& window_input(int i);         ///< an activation that may have padding
  const OnnxValue& scaled_input(int i);         ///< an activation that may have a factor and a shift
  const OnnxValue& bounded_input(int i);        ///< an activation that may have bounds
  const OnnxValue& head_input(int i);           ///< an activation that may be in heads and have a factor and a shift
  const Constant& constant(int i);              ///< a constant without NaN and infinity
  const Constant& bound(int i);                 ///< a constant of any values
  const Constant& weights(int i, size_t rank);  ///< a float32 constant, every dimension in 1..kMaxDimension
  std::vector<int64_t> integers_input(int i);   ///< a constant of integers, of rank 0 or 1
  bool all_constant();                          ///< whether every input is a constant
  int readers(int i) const;                     ///< how many nodes and outputs read the value of input i

  bool has(const char* name) { return find(name) != nullptr; }
  int64_t integer(const char* name, int64_t fallback);
  float real(const char* name, float fallback);
  std::string text(const char* name, const std::string& fallback);
  std::vector<int64_t> integers(const char* name, std::vector<int64_t> fallback);
  /// Returns the row of integers that is input i or, in older opsets, an attribute; empty if neither is given.
  std::vector<int64_t> row(int i, const char* name);
  const onnx::AttributeProto* attribute(const char* name) { return find(name); }
  void done();  ///< fails for an attribute that was not asked for

  /// Returns names for a node of the Graph, the best first: of the PyTorch module whose weight is the input
  /// `weight_input`, of the file's node, of its output.
  std::vector<std::string> names(int weight_input = -1) const;
  const std::string& name_of_input(int i) const { return node_.input(i); }

  int outputs() const { return node_.output_size(); }
  const std::string& name_of_output(int i) const { return node_.output(i); }
  void result(OnnxValue value, int output = 0);  ///< sets what an output stands for
  /// Appends a node of the Graph under names(), whose output [N, C, H, W] or, of rank 2, [N, C] is this node's.
  void make(Node made, int rank);
  Network& network() { return network_; }

 private:
  const OnnxValue& reals(int i);
  const OnnxValue& images(int i);
  const OnnxValue& without_pad(int i);
  void check_no_bounds(int i, const OnnxValue& value) const;
  void check_no_factor(int i, const OnnxValue& value) const;
  const onnx::AttributeProto* find(const char* name);
  const onnx::AttributeProto* find(const char* name, onnx::AttributeProto::AttributeType type);

  const onnx::NodeProto& node_;
  Network& network_;
  std::set<std::string> taken_;
  std::optional<bool> channels_last_;  ///< of the activations that were read
};

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
