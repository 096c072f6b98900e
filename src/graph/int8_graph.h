// The waist: the int8 network as plain data. Training writes it, engines read it, the checkpoint stores it. It holds
// all that is needed to compute logits from images, bit for bit (arithmetic: kernels/quantize.h), and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/quantize.h"
#include "src/graph/graph.h"

namespace octet {

enum class Int8Op {
  input,            ///< uint8 image [H, W, C] -> codes quantize(normalize_pixel(p, mean[c], std[c]), out)
  conv2d,           ///< acc = sum (xq - zx) * wq; codes; optional residual as second input
  linear,           ///< the same with a 1x1 image; weight columns in HWC order of the flattened tensor
  add,              ///< t = float(aq - za) * multiplier[0]; t = fma(float(bq - zb), multiplier[1], t)
  concat,           ///< each input on its own: t = float(xq - zx) * multiplier[i]
  max_pool,         ///< maximum of codes, then the clamp; padding never wins; qparams of its input
  avg_pool,         ///< t = float(sum over the window of (xq - zx)) * multiplier[0]; padding adds 0
  global_avg_pool,  ///< the same over the whole image
  subsample_pad,    ///< codes copied, zero point in the added channels; qparams of its input
  flatten,          ///< the same codes, [C*H*W, 1, 1]; memory stays in HWC order; qparams of its input
  requantize,       ///< t = float(xq - zx) * multiplier[0]: a ReLU or change of scale on its own
  mul,              ///< t = float((aq - za) * (bq - zb)) * multiplier[0]; b may be [C, 1, 1], for all pixels of a
  lookup,           ///< code = table[code of the input]: a function of one value
  slice,            ///< the codes of some channels; qparams of its input
  resize,           ///< every pixel's codes factor_h x factor_w times; qparams of its input
  channel_shuffle,  ///< the codes of all channels in another order; qparams of its input
  depth_to_space,   ///< factor_h x factor_w pixels, each some of a pixel's channels; qparams of its input
  resize_bilinear,  ///< t = float(sum over four pixels of whole weights * (xq - zx)) * multiplier[0]
  matmul,           ///< t = float(sum of (aq - za) * (bq - zb)) * multiplier[0]; which: Op::matmul
  softmax,          ///< t = float(e) / float(sum of e over the group) * multiplier[0]; e = exponentials[largest - code]
};

std::string_view int8_op_name(Int8Op op);
Int8Op int8_op_from_name(std::string_view name);  ///< throws Error(data)

/// One node. t above is turned into a code by y = clamp(rint(t) + out.zero_point, clamp_min, clamp_max), except when
/// float_output is set: then t itself, a float32, is what the network gives, and no other node reads it.
struct Int8Node {
  std::string name;
  Int8Op op = Int8Op::input;
  std::vector<int> inputs;         ///< earlier nodes; conv2d: [x] or [x, residual]
  Window window;                   ///< conv2d, max_pool, avg_pool; strides of subsample_pad
  int groups = 1;                  ///< conv2d, channel_shuffle, matmul, softmax
  bool transposed = false;         ///< matmul
  int first_channel = 0;           ///< slice
  int factor_h = 1, factor_w = 1;  ///< resize, depth_to_space, resize_bilinear
  Shape shape;                     ///< of the output
  QParams out;                     ///< of the output edge: every consumer reads these codes
  int32_t clamp_min = -128;        ///< >= out.quant_min; ReLU raises it to the zero point
  int32_t clamp_max = 127;         ///< <= out.quant_max; ReLU6 lowers it
  bool float_output = false;

  std::vector<int8_t> weight;  ///< conv2d [K, R, S, C/groups], linear [K, C]; each in [-127, 127]
  int weight_bits = 8;         ///< conv2d, linear: 2..8, which hold every weight in two's complement; a file packs them
  bool two_of_four = false;    ///< conv2d, linear: of each four consecutive weights of a row [.., C/groups] at most two
                               ///< are not 0, and C/groups is a multiple of four
  std::vector<float> weight_scale;    ///< [K]; for inspection, not used in arithmetic
  std::vector<float> multiplier;      ///< conv2d, linear [K]; add [2]; concat [inputs]; mul, pools, resize_bilinear,
                                      ///< matmul, softmax, requantize [1]; else empty
  std::vector<float> bias;            ///< conv2d, linear [K], in units of the output scale (reals when float_output)
  float residual_multiplier = 0;      ///< conv2d with residual: t = fma(float(rq - zr), residual_multiplier, t)
  std::vector<uint8_t> table;         ///< lookup [256]: the output code's stored byte, by the input code's stored byte
  std::vector<int32_t> exponentials;  ///< softmax [256]: exp(-d * scale of the input) in 1 / kExponentialOne, by d =
                                      ///< largest code of the group less code
  std::string function;               ///< lookup: what the table was made from ("silu"), for people and exporters

  /// Of one image's output without gaps: codes, or float32.
  size_t image_bytes() const { return static_cast<size_t>(shape.elements()) * (float_output ? sizeof(float) : 1); }
};

/// How a picture becomes the uint8 input [H, W, C].
struct Preprocessing {
  int resize = 0;                 ///< shorter side to this many pixels (bilinear); 0: none
  int crop = 0;                   ///< centre crop to crop x crop; 0: none
  bool exif_orientation = false;  ///< before all, pictures are turned as their EXIF data says; else taken as stored
  bool even_margin = false;       ///< half of an odd number of pixels before the crop is rounded to even, else down
  std::vector<float> mean, std;   ///< one a channel, on the 0..1 scale
  bool operator==(const Preprocessing&) const = default;
};

struct Int8Graph {
  std::string name;
  std::vector<Int8Node> nodes;  ///< nodes[0] is the input
  std::vector<int> outputs;     ///< nodes, in the order a Program gives them; those with float_output, and codes
  Preprocessing preprocessing;
  std::vector<std::string> class_names;      ///< one a channel of the only output; empty: unknown
  std::string recipe_hash;                   ///< of the resolved recipe, hex
  std::map<std::string, double> accuracies;  ///< "float_top1": 0.9213 and so on; for information
  const Shape& input_shape() const { return nodes.front().shape; }

  /// Of a classifier. For whoever needs logits; throws Error(usage) naming the outputs of any other network.
  int classes() const;
};

/// One output, float32 [classes, 1, 1].
bool is_classifier(const Int8Graph& graph);

/// exp(0) in the table of a softmax: so large that every probability an 8-bit code can tell from 0 has its share, so
/// small that a group of kMostSoftmaxChannels (src/graph/window.h) adds up to less than 2^31.
inline constexpr int32_t kExponentialOne = 1 << 15;

/// Largest magnitude of a multiplier or bias: three such products cannot overflow float32.
inline constexpr float kMaxMultiplier = 1e28f;

/// Checks everything an engine relies on: order, arity, shapes against windows, sizes of all vectors, weight codes
/// within [-127, 127], finite multipliers, scales > 0, zero points and clamps within ranges, pass-through nodes sharing
/// their input's qparams (and, but for max_pool, clamping nothing), tables within the clamp, exponentials within
/// 0..kExponentialOne, accumulators that cannot leave int32 (sum |w| * max |xq - zx| < 2^31), outputs that are nodes
/// behind the input. Throws Error(data) naming the node.
void validate(const Int8Graph& graph);

/// "u8", "s4": signed or unsigned, and the bits that the range of codes needs.
std::string code_type(const QParams& qparams);

/// Multiply-adds of one image through conv2d, linear and matmul nodes.
long multiply_adds(const Int8Graph& graph);

/// The 256 input codes of channel c: table[p] = quantize(normalize_pixel(p, mean[c], std[c]), nodes[0].out), as stored
/// bytes.
std::vector<uint8_t> input_table(const Int8Graph& graph, int channel);

}  // namespace octet
