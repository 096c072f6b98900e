// SPDX-License-Identifier: Apache-2.0
// A network while it is imported from an ONNX file: the Graph so far, its weights, and what every name of the file
// stands for. Float and quantized networks share it.
#pragma once

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/core/quantize.h"
#include "src/net/graph.h"
#include "src/net/onnx/model_file.h"
#include "src/net/onnx/onnx.h"

namespace octet {

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

  /// Appends a node with its shape, called by the first of `names` that no other node has. Throws Error(usage) if none
  /// is left and for what infer_shapes() refuses.
  OnnxValue append(Node node, const std::vector<std::string>& names);

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
