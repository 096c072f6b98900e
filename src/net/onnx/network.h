// SPDX-License-Identifier: Apache-2.0
// A network while it is imported from an ONNX file. First the file: the model as protobuf reads it, checked before
// anything is made of it, and its constants, which are weights and the integers of shape arithmetic (model_file.cpp).
// Then the network: the Graph so far, its weights, and what every name of the file stands for. Float and quantized
// networks share it.
#pragma once

#include <google/protobuf/arena.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/core/quantize.h"
#include "onnx.pb.h"
#include "src/net/graph.h"
#include "src/net/onnx/onnx.h"

namespace octet {

struct OnnxFile {
  std::string name;                        ///< for messages
  std::string folder;                      ///< that external data may be read from; "": none may
  size_t size = 0;                         ///< bytes
  std::map<std::string, size_t> external;  ///< sizes of the files of external data that were read
  int opset = 0;
  std::unique_ptr<google::protobuf::Arena> memory;  ///< owns the model
  const onnx::ModelProto* model = nullptr;
};

inline constexpr int kOldestOpset = 7, kNewestOpset = 23;

/// Parses the bytes. Throws Error(data) unless they are a model with one graph and an opset from 7 to 23, and for a
/// file that would take more than 32 times its size in memory: an empty message takes two bytes in the file, a hundred
/// in memory. Unless as_written, QOperator form becomes QDQ.
OnnxFile open_onnx(const std::byte* data, size_t size, const std::string& name, const std::string& folder,
                   bool as_written = false);

/// Rewrites the nodes of a quantized network in QOperator form (QLinearConv) as QDQ: DequantizeLinear, the operator of
/// reals, QuantizeLinear. Other networks stay as they are. Throws Error(data), naming `file`.
void expand_qoperators(onnx::GraphProto& graph, const std::string& file);

/// Puts the nodes of a graph behind those whose values they read; sorted nodes stay as they are. Throws Error(data)
/// naming the nodes of a cycle.
void sort_nodes(const std::string& file, onnx::GraphProto& graph);

/// Returns "node 'conv1' (Conv)".
std::string node_label(const onnx::NodeProto& node);

/// The number of images in integers that come from a shape. An imported network takes any number.
inline constexpr int64_t kBatchSize = std::numeric_limits<int64_t>::min() + 4242;

struct Constant {
  std::vector<int64_t> shape;
  bool real = false;              ///< float32, also of another real type in the file; else integers or bool
  bool is_finite = true;          ///< no NaN and no infinity among the reals
  int type = 0;                   ///< ONNX's number for the type of the file's tensor; 0: a computed constant
  std::vector<float> reals;       ///< row-major
  std::vector<int64_t> integers;  ///< row-major
  std::vector<float> scale;  ///< reals that were codes times a scale: one scale, or one for each index along `axis`
  int64_t axis = 0;
  size_t too_large = 0;  ///< float64 values beyond float32, which are infinite here
  size_t too_small = 0;  ///< float64 values below float32's normal numbers, which are 0 or have fewer digits here
  size_t elements() const { return real ? reals.size() : integers.size(); }
  size_t bytes() const { return reals.size() * sizeof(float) + integers.size() * sizeof(int64_t); }
};

/// Whether ONNX's type number stands for float32, float16, bfloat16 or float64, all of which octet computes in float32.
bool is_real_type(int type);

/// Reads a tensor from the file or from external data. Throws Error(data) beginning with `where` for other types, sizes
/// that differ from the shape, and external data outside the file's folder.
Constant read_constant(OnnxFile& file, const onnx::TensorProto& tensor, const std::string& where);

/// Returns ONNX's name for the type of this number (TensorProto.DataType), "INT8", or "number 99" if it has none.
std::string type_name(int64_t type);

/// Returns "[64, 3, 7, 7]", with "N" for kBatchSize.
std::string dims_text(const std::vector<int64_t>& dims);

/// Returns a name from the untrusted file as printable ASCII of at most 80 characters.
std::string shown_name(const std::string& name);

/// Whether a Transpose to [N, C, H, W] reads the input `name`, perhaps behind operators of single values: so write
/// TensorFlow's converters.
bool is_turned(const onnx::GraphProto& graph, std::string name);

/// What a name of the file stands for: a constant, or an activation, which is the output of a node of the Graph. Some
/// ONNX nodes make no node of the Graph but set a field here, which the nodes that read the value take into account.
struct OnnxValue {
  std::shared_ptr<const Constant> constant;
  int node = -1;               ///< the node of the Graph; -1: a constant
  int rank = 4;                ///< 4: [N, C, H, W]; 3: [N, C, W] of an image of height 1; 2: [N, C] of a 1x1 image
  bool channels_last = false;  ///< rank 4: [N, H, W, C]; rank 2: a flattened image, its values in the order H, W, C
  bool direct = false;         ///< it is the output of the file's node that made the Graph's node
  bool softmax = false;        ///< it comes after a Softmax, which is left out
  int64_t groups = 0;          ///< it was reshaped to [N, groups, C / groups, H, W]; 0: it was not
  bool swapped = false;        ///< then it was transposed to [N, C / groups, groups, H, W]
  int heads = 0;              ///< it was reshaped to heads of attention, [N, heads, C / heads, H * W] or, for one head,
                              ///< [N, C, H * W]; 0: it was not
  bool pixels_first = false;  ///< the heads were transposed to [.., H * W, C / heads]
  Padding pad;                ///< zeros that a Pad puts around it, which the next window takes as its padding
  double factor = 1, shift = 0;  ///< it is factor * node + shift, as inside a hard_swish written with several nodes
  bool erf = false;              ///< it is factor * erf(node / sqrt(2)) + shift, as inside a gelu
  bool plain() const { return factor == 1 && shift == 0 && !erf; }

  // In quantized networks.
  bool codes = false;        ///< it comes from a QuantizeLinear
  bool dequantized = false;  ///< it comes from a DequantizeLinear
  /// The bounds of a Relu or Clip before the next QuantizeLinear; for codes, of a Clip before the DequantizeLinear.
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();
  bool bounded() const { return std::isfinite(low) || std::isfinite(high); }
};

/// What a quantized network (QDQ) says in addition to the float Graph. All maps are by the names of the Graph's nodes.
struct QdqMarks {
  /// The output of a node.
  struct Edge {
    QParams qparams;
    float low = 0, high = 0;                       ///< bounds of the value before it is quantized
    double factor = 1;                             ///< of a requantize: multiplies the value before it is quantized
    std::optional<std::pair<float, float>> codes;  ///< bounds of the codes; set by the first DequantizeLinear
  };
  std::map<std::string, Edge> edges;
  std::map<std::string, std::string> codes;                 ///< the file's names of the codes
  std::map<std::string, std::vector<float>> weight_scales;  ///< one for each output channel
  std::set<std::string> picks;                              ///< convolutions that only copy codes of their input
};

/// Rules (rules.h) fill it node by node; finish() ends it.
class Network {
 public:
  explicit Network(OnnxFile& file) : file_(file) {}

  OnnxFile& file() { return file_; }
  const OnnxFile& file() const { return file_; }
  const Graph& graph() const { return result_.graph; }
  const Shape& shape(const OnnxValue& value) const { return graph().nodes[static_cast<size_t>(value.node)].shape; }
  Node& node(const OnnxValue& value) { return result_.graph.nodes[static_cast<size_t>(value.node)]; }

  /// Appends a node with its shape, called by the first of `names` that no other node has, and returns its value, of
  /// this rank. Throws Error(usage) if none is left and for what infer_shapes() refuses.
  OnnxValue append(Node node, const std::vector<std::string>& names, int rank = 4);

  /// Sets the parameter "<node>.<suffix>". Throws Error(data) if all weights take more than kMaxCopies times the bytes
  /// read, because nodes that share weights have a copy each.
  void put(const std::string& node, const char* suffix, std::vector<int64_t> shape, const std::vector<float>& values);
  /// Changes a layer's weights and bias so that its output k becomes factors[k] * output + shifts[k].
  void scale_layer(Node& layer, const std::vector<float>& factors, const std::vector<float>& shifts);
  /// Returns the parameter "<node>.<suffix>".
  std::vector<float> floats(const std::string& node, const char* suffix) const;

  /// Throws like put() if this many more bytes of weights were too many; before they are allocated.
  void check_room(size_t bytes) const;

  /// Reads a tensor of the file, with notes about float64. `what`: for these and for errors, after the file's name.
  Constant read(const onnx::TensorProto& tensor, const std::string& what);

  /// Makes a value of a constant, whose bytes count like those of weights.
  OnnxValue constant(Constant constant);

  /// Returns what a name stands for, null if nothing before gives it. Weights are read from the file on first use.
  const OnnxValue* find(const std::string& name);

  /// Returns the dimensions of an activation as the file has them; the first is `images`.
  std::vector<int64_t> dims(const OnnxValue& value, int64_t images) const;

  void note(const std::string& text);  ///< adds a note for people, unless it is there already

  std::map<std::string, OnnxValue> values;  ///< by the file's name
  std::map<std::string, const onnx::TensorProto*> initializers;
  std::map<std::string, int> uses;  ///< how many needed nodes and outputs read a name
  int64_t batch = kBatchSize;       ///< the number of images, if the file fixes it
  QdqMarks* marks = nullptr;        ///< null: a float network
  double rounding = 1e-6;           ///< of the file's constants near 1; more if some are float16

  /// Returns the nodes that the outputs need, in order and checked, and their weights.
  ImportedNetwork finish(const std::vector<OnnxValue>& outputs);

 private:
  void count_bytes(size_t bytes);

  OnnxFile& file_;
  ImportedNetwork result_;
  std::set<std::string> names_;
  size_t bytes_ = 0;  ///< of weights and constants
};

/// Opens a file whose external data may be in the same folder; as_written as in open_onnx().
OnnxFile open_onnx_file(const std::string& path, bool as_written = false);

/// Imports a network; `outputs` and `image_size` as in import_onnx(). `marks` receives the scales and bounds of a
/// quantized network; null for a float network, in which a QuantizeLinear is refused.
ImportedNetwork import_file(OnnxFile& file, const std::vector<std::string>& outputs, QdqMarks* marks,
                            int image_size = 0);

/// What to do with a quantized file in a form that octet does not read.
inline constexpr const char* kQuantizeByOnnxRuntime =
    "quantize the float network by onnxruntime.quantization.quantize_static(..., quant_format=QuantFormat.QDQ)";

/// Returns the names of the file's outputs.
std::vector<std::string> output_names(const OnnxFile& file);

/// Returns the names that name_outputs() of import.h gives the outputs of a network from a file.
std::vector<std::string> names_of_outputs(const Graph& graph);

/// Returns why a value cannot be an output, or "".
std::string output_fault(const OnnxValue& value);

/// The values at which a network could end, if it cannot be imported whole because of nodes after its last layers: many
/// files decode boxes, suppress them or pick a class there, and octet has no such operators.
struct NearestValues {
  std::vector<std::string> names;     ///< of the values, in the order of the file
  std::vector<std::string> left_out;  ///< the operators after them, each once
};

/// Returns the values nearest to `outputs` that could be imported, after every node was tried. Empty if part of the
/// trained network would be lost: layers after them have more than a hundredth of the weights, or take one number for
/// each of their channels, like a bias.
NearestValues nearest_values(Network& network, const std::vector<std::string>& outputs);

/// Returns what makes the network end at the values `names`: a recipe's model.outputs and --outputs, for a quantized
/// file a command of ONNX's package. open_size: the --image-size that the file needs; 0: it has a size.
std::string how_to_end_at(const Network& network, const std::vector<std::string>& names, int open_size);

/// Returns what is added to the refusal of a node behind all layers: "; ... end the network before it: ...".
std::string advice_to_end(const Network& network, const NearestValues& nearest, int open_size);

/// Whether a refused node prepares the images: a Clip, Transpose or Resize that alone reads them.
bool prepares_images(Network& network, const onnx::NodeProto& node);

/// Returns what is added to its refusal: "; ... begin the file behind it: ...". outputs: of the file.
std::string advice_to_begin(const Network& network, const onnx::NodeProto& node,
                            const std::vector<std::string>& outputs);

}  // namespace octet
