// SPDX-License-Identifier: Apache-2.0
// The int8 network as plain data: the waist between training, which writes it, and engines, which read it. It holds all
// that is needed to compute outputs from image files, bit for bit (arithmetic: kernels/core/quantize.h): how an image
// becomes the input, the nodes with their constants, and which outputs of a detector give boxes. What makes parts of it
// from a float Graph is declared here, too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/quantize.h"
#include "src/base/names.h"
#include "src/net/graph.h"

namespace octet {

enum class Int8Op {
  input,            ///< uint8 image [H, W, C] -> codes quantize(normalize_pixel(p, mean[c], std[c]), out)
  conv2d,           ///< acc = sum (xq - zx) * wq; codes; optional residual as second input
  linear,           ///< the same for a 1x1 image; weight columns are in HWC order of the flattened tensor
  add,              ///< t = float(aq - za) * multiplier[0]; t = fma(float(bq - zb), multiplier[1], t)
  concat,           ///< for each input i: t = float(xq - zx) * multiplier[i]
  max_pool,         ///< the largest code, then the clamp; padding is never the largest; qparams of its input
  avg_pool,         ///< t = float(sum over the window of (xq - zx)) * multiplier[0]; padding adds 0
  global_avg_pool,  ///< the same sum over all pixels
  subsample_pad,    ///< copies codes; the added channels hold the zero point; qparams of its input
  flatten,          ///< the same codes in the same (HWC) order, as [C*H*W, 1, 1]; qparams of its input
  requantize,       ///< t = float(xq - zx) * multiplier[0]: only a ReLU or a change of scale
  mul,              ///< t = float((aq - za) * (bq - zb)) * multiplier[0]; b may be [C, 1, 1], a factor for all pixels
  lookup,           ///< code = table[code of the input]: a Function of each value
  slice,            ///< copies the codes of some channels; qparams of its input
  resize,           ///< repeats every pixel's codes factor_h x factor_w times; qparams of its input
  channel_shuffle,  ///< copies the codes of all channels in another order; qparams of its input
  depth_to_space,   ///< turns a pixel's channels into factor_h x factor_w pixels; qparams of its input
  resize_bilinear,  ///< t = float(sum over four pixels of integer weights * (xq - zx)) * multiplier[0]
  matmul,           ///< t = float(sum of (aq - za) * (bq - zb)) * multiplier[0]; the sum of Op::matmul
  softmax,          ///< t = float(e) / float(sum of e over the group) * multiplier[0]; e = exponentials[largest - code]
  prelu,            ///< t = float(xq - zx) * multiplier[0], or * multiplier[1 + group of the channel] where xq < zx
};

std::string_view int8_op_name(Int8Op op);
Int8Op int8_op_from_name(std::string_view name);  ///< throws Error(data)

/// One node. Its code is y = clamp(rint(t) + out.zero_point, clamp_min, clamp_max) for the t of its operator. With
/// float_output it gives t itself as float32, as an output of the network that no other node reads.
struct Int8Node {
  std::string name;
  Int8Op op = Int8Op::input;
  std::vector<int> inputs;         ///< earlier nodes; conv2d: [x] or [x, residual]
  Window window;                   ///< conv2d, max_pool, avg_pool; subsample_pad uses its strides
  int groups = 1;                  ///< conv2d, channel_shuffle, matmul, softmax, prelu
  bool transposed = false;         ///< matmul
  int first_channel = 0;           ///< slice
  int factor_h = 1, factor_w = 1;  ///< resize, depth_to_space, resize_bilinear
  Shape shape;                     ///< of the output
  QParams out;                     ///< of the output, whose codes every reader takes as they are
  int32_t clamp_min = -128;        ///< >= out.quant_min; ReLU raises it to the zero point
  int32_t clamp_max = 127;         ///< <= out.quant_max; ReLU6 lowers it
  bool float_output = false;

  std::vector<int8_t> weight;  ///< conv2d [K, R, S, C/groups], linear [K, C]; each in [-127, 127]
  int weight_bits = 8;  ///< conv2d, linear: 2..8, enough for every weight in two's complement; files pack weights so
  bool two_of_four = false;  ///< conv2d, linear: at most two of each four consecutive weights of a row [.., C/groups]
                             ///< are not 0, and C/groups is a multiple of four
  std::vector<float> weight_scale;  ///< [K]; for inspection, not used in arithmetic
  std::vector<float> multiplier;    ///< conv2d, linear [K]; add [2]; concat [inputs]; mul, pools, resize_bilinear,
                                    ///< matmul, softmax, requantize [1]; prelu [1 + groups]; else empty
  std::vector<float> bias;          ///< conv2d, linear [K], in units of the output scale (reals when float_output)
  float residual_multiplier = 0;    ///< conv2d with residual: t = fma(float(rq - zr), residual_multiplier, t)
  std::vector<uint8_t> table;  ///< lookup [256]: the stored byte of the output code, indexed by that of the input code
  std::vector<int32_t> exponentials;  ///< softmax [256]: exp(-d * scale of the input) * kExponentialOne, indexed by d =
                                      ///< the largest code of the group minus the code
  std::string function;               ///< lookup: what the table was made from ("silu"), for people and exporters

  /// Returns the bytes of the output for one image: codes, or float32, without gaps.
  size_t image_bytes() const { return static_cast<size_t>(shape.elements()) * (float_output ? sizeof(float) : 1); }
};

/// Returns an int8 node with the name, attributes and shape of a float one; inputs, codes and constants are missing.
Int8Node int8_node(const Node& node, Int8Op op);

// How an image file becomes the input of a network: a part of every checkpoint, so that whoever runs it prepares images
// as they were prepared when it was trained or calibrated.

/// How an image gets the height and width of the network's input.
enum class Fit {
  crop,              ///< its centre is cropped, after `resize` if there is one
  stretch,           ///< resized to the input's height and width, whatever its aspect ratio
  letterbox,         ///< resized within the input with its aspect ratio, in the middle; the rest is kLetterboxGrey
  letterbox_corner,  ///< the same, in the upper left corner, as YOLOX has it
  tensor,            ///< there are no images: the input is ready tensors, and pixels are the bytes of its codes
};
inline constexpr std::array<Named<Fit>, 5> kFits = {{{Fit::crop, "crop"},
                                                     {Fit::stretch, "stretch"},
                                                     {Fit::letterbox, "letterbox"},
                                                     {Fit::letterbox_corner, "letterbox_corner"},
                                                     {Fit::tensor, "tensor"}}};

/// The value of the pixels around a letterboxed image, in every channel.
inline constexpr unsigned char kLetterboxGrey = 114;

/// The order of a colour image's channels in the network's input. OpenCV reads images as bgr.
enum class ChannelOrder { rgb, bgr };
inline constexpr std::array<Named<ChannelOrder>, 2> kChannelOrders = {
    {{ChannelOrder::rgb, "rgb"}, {ChannelOrder::bgr, "bgr"}}};

struct Preprocessing {
  int resize = 0;                 ///< fit crop: the shorter side becomes this many pixels (bilinear); 0: no resize
  int crop = 0;                   ///< fit crop: the centre is cropped to crop x crop pixels; 0: to the input's size
  bool exif_orientation = false;  ///< first rotates or mirrors images as their EXIF data says
  bool even_margin = false;       ///< half of an odd margin around the crop is rounded to even, else down
  Fit fit = Fit::crop;
  ChannelOrder order = ChannelOrder::rgb;
  std::vector<float> mean, std;  ///< one for each channel of the input, on the 0..1 scale
  bool operator==(const Preprocessing&) const = default;
};

// The head of a detector: which outputs of a network give boxes, and how. A part of the checkpoint, so that a program
// needs nothing else to turn outputs into boxes (src/detect/decode.h).

enum class BoxHeadKind {
  yolox,     ///< of a cell (x, y): centre (x + b0, y + b1) and size (exp b2, exp b3), both times the stride; score
             ///< sigmoid(objectness) * sigmoid(class). Ge et al., YOLOX, arXiv 2107.08430
  yolo_dfl,  ///< of YOLOv8 and YOLO11: from the cell's centre (x + 0.5, y + 0.5) to left, top, right, bottom the mean
             ///< of 0..15 under the softmax of 16 channels, times the stride; score sigmoid(class). Li et al.,
             ///< Generalized Focal Loss, arXiv 2006.04388
};
inline constexpr std::array<Named<BoxHeadKind>, 2> kBoxHeadKinds = {
    {{BoxHeadKind::yolox, "yolox"}, {BoxHeadKind::yolo_dfl, "yolo_dfl"}}};

/// The bins of one side of a box, of a head yolo_dfl.
inline constexpr int kDistanceBins = 16;

struct BoxHead {
  BoxHeadKind kind = BoxHeadKind::yolox;
  /// One resolution. The numbers are places in Int8Graph::outputs; all three outputs have the same height and width.
  struct Level {
    int stride = 0;       ///< pixels of the input for each cell
    int boxes = 0;        ///< [4, h, w], or [4 * kDistanceBins, h, w] of yolo_dfl
    int objectness = -1;  ///< [1, h, w]; -1 for yolo_dfl
    int classes = 0;      ///< [classes, h, w]
    bool operator==(const Level&) const = default;
  };
  std::vector<Level> levels;
  float score_threshold = 0.25f;  ///< boxes of a lower score are left out, unless the caller wants others
  float iou_threshold = 0.45f;  ///< of two boxes of one class that overlap more, the one of the lower score is left out
  int max_boxes = 300;          ///< of an image, those of the highest scores
  bool operator==(const BoxHead&) const = default;
};

struct Int8Graph {
  std::string name;
  std::vector<Int8Node> nodes;  ///< nodes[0] is the input
  std::vector<int> outputs;     ///< nodes, in the order in which a Program gives them: all with float_output, and
                                ///< others that give codes
  Preprocessing preprocessing;
  std::optional<BoxHead> boxes;          ///< of a detector
  std::vector<std::string> class_names;  ///< one for each class of `boxes`, else for each channel of the only
                                         ///< output; empty: unknown
  std::string recipe_hash;               ///< of the resolved recipe, hex; empty: no recipe made it
  /// Whether input and outputs are called in ONNX files as their nodes are: in a network from a file, whose names they
  /// have, and in one that no recipe made.
  bool own_names = false;
  std::map<std::string, double> accuracies;  ///< "float_top1": 0.9213 and so on; only for information
  const Shape& input_shape() const { return nodes.front().shape; }

  /// Returns the classes of a classifier. Throws Error(usage) naming the outputs of any other network.
  int classes() const;
};

/// Whether the network has one output, float32 [classes, 1, 1].
bool is_classifier(const Int8Graph& graph);

/// exp(0) in the table of a softmax: large enough that no probability that an 8-bit code can tell from 0 vanishes,
/// small enough that a group of kMaxSoftmaxChannels (src/net/shapes.h) adds up to less than 2^31.
inline constexpr int32_t kExponentialOne = 1 << 15;

/// The largest magnitude of a multiplier or bias: three products with such numbers cannot overflow float32.
inline constexpr float kMaxMultiplier = 1e28f;

/// Checks everything that an engine relies on: order, number of inputs, shapes, sizes of all vectors, weight codes
/// within [-127, 127], finite multipliers, scales > 0, zero points and clamps within ranges, nodes that pass codes on
/// with the qparams of their input (and no clamp, except a max_pool), tables within the clamp, exponentials within
/// 0..kExponentialOne, accumulators that cannot leave int32 (sum |w| * max |xq - zx| < 2^31), outputs other than the
/// input.
///
/// Throws Error(data) naming the node.
void validate(const Int8Graph& graph);

/// Returns "u8", "s4": signed or unsigned, and the bits that the range of codes needs.
std::string code_type(const QParams& qparams);

/// Returns the multiply-adds of one image in conv2d, linear and matmul nodes.
long multiply_adds(const Int8Graph& graph);

/// Returns the input codes of channel c as stored bytes, indexed by the pixel p in 0..255:
/// table[p] = quantize(normalize_pixel(p, mean[c], std[c]), nodes[0].out).
std::vector<uint8_t> input_table(const Int8Graph& graph, int channel);

/// Returns the head of a network whose outputs are the last convolutions of a detector: the levels by the outputs'
/// sizes, which output is which by channels, by the layer that it reads and, where that leaves a choice, by its name.
/// Throws Error(usage) saying what does not fit; nothing is guessed.
BoxHead find_box_head(const Graph& graph, BoxHeadKind kind);

/// Throws Error(data) if graph.boxes does not fit the outputs.
void check_box_head(const Int8Graph& graph);

/// Returns the number of classes of graph.boxes, which must be there.
int box_classes(const Int8Graph& graph);

}  // namespace octet
