// The network while it is made from an ONNX file: the Graph so far, its weights, and what every name of the file stands
// for.
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

#include "kernels/quantize.h"
#include "src/graph/graph.h"
#include "src/onnx/constants.h"
#include "src/onnx/import.h"

namespace octet {

/// What a name of the file stands for: a constant, or an activation, the output of a node of the Graph.
struct OnnxValue {
  std::shared_ptr<const Constant> constant;
  int node = -1;                 ///< of the Graph; -1: a constant
  int rank = 4;                  ///< [N, C, H, W]; 2: [N, C] of a 1x1 image
  bool direct = false;           ///< the file's node is the Graph's node, nothing else of the file is in between
  bool softmax = false;          ///< behind the Softmax that is left out
  int64_t groups = 0;            ///< of channels, behind a Reshape to [N, groups, C / groups, H, W]; 0: no such
  bool turns = false;            ///< and a Transpose to [N, C / groups, groups, H, W]
  int heads = 0;                 ///< of attention, [N, heads, C / heads, H * W], or, of one, [N, C, H * W]; 0: no such
  bool pixels_first = false;     ///< of heads, behind a Transpose to [.., H * W, C / heads]
  Padding pad;                   ///< zeros that a Pad put around it and that the next window takes
  double factor = 1, shift = 0;  ///< the value is factor * node + shift: what hard_swish in pieces has in between
  bool erf = false;              ///< it is factor * erf(node / sqrt(2)) + shift: what gelu in pieces has in between
  bool plain() const { return factor == 1 && shift == 0 && !erf; }

  // In quantized networks.
  bool codes = false;        ///< behind a QuantizeLinear
  bool dequantized = false;  ///< behind a DequantizeLinear
  float low = -std::numeric_limits<float>::infinity();
  /// What a Relu or Clip before the next QuantizeLinear leaves; of codes, what a Clip before the DequantizeLinear
  /// leaves.
  float high = std::numeric_limits<float>::infinity();
  bool bounded() const { return std::isfinite(low) || std::isfinite(high); }
};

/// What a quantized network (QDQ) says beside the float one, by the Graph's nodes.
struct QdqMarks {
  struct Edge {
    QParams qparams;
    float low = 0, high = 0;  ///< bounds of the value before it is quantized
    double factor = 1;        ///< of a requantize: what the value is multiplied by before it is quantized
    std::optional<std::pair<float, float>> codes;  ///< bounds of the codes, once a DequantizeLinear has read them
  };
  std::map<std::string, Edge> edges;
  std::map<std::string, std::string> codes;                 ///< what the file calls them
  std::map<std::string, std::vector<float>> weight_scales;  ///< one an output channel
  std::set<std::string> picks;                              ///< convolutions that give codes of their input as they are
};

class Network {
 public:
  explicit Network(OnnxFile& file) : file_(file) {}

  OnnxFile& file() { return file_; }
  const Graph& graph() const { return result_.graph; }
  const Shape& shape(const OnnxValue& value) const { return graph().nodes[static_cast<size_t>(value.node)].shape; }
  Node& node(const OnnxValue& value) { return result_.graph.nodes[static_cast<size_t>(value.node)]; }

  /// Appends a node, with its shape, under the first of `names` that is free. Throws Error(usage) for what
  /// infer_shapes() refuses.
  OnnxValue append(Node node, const std::vector<std::string>& names);

  /// The parameter "<node>.<suffix>". Throws Error(data) when weights, copied for each node that shares them, grow far
  /// beyond the file.
  void put(const std::string& node, const char* suffix, std::vector<int64_t> shape, const std::vector<float>& values);
  /// factors[k] * its output plus shifts[k], by its weights and bias.
  void scale_layer(Node& layer, const std::vector<float>& factors, const std::vector<float>& shifts);
  std::vector<float> floats(const std::string& node, const char* suffix) const;

  /// The same error for as many bytes of weights, before they are made.
  void check_room(size_t bytes) const;

  /// A constant that the file gives or that follows from such; counted like weights.
  OnnxValue constant(Constant constant);

  /// What a name stands for; weights of the file are read when first asked for. nullptr: nothing that came before.
  const OnnxValue* find(const std::string& name);

  void note(const std::string& text);  ///< once, however often it is said

  std::map<std::string, OnnxValue> values;  ///< by the file's name
  std::map<std::string, const onnx::TensorProto*> initializers;
  std::map<std::string, int> uses;  ///< how many nodes that count, and outputs, read a name
  int64_t batch = kBatchSize;       ///< that the file was exported with, where it is fixed
  QdqMarks* marks = nullptr;        ///< where a quantized network is read

  /// Only what the outputs need, in order, checked; with its weights.
  ImportedNetwork finish(const std::vector<OnnxValue>& outputs);

 private:
  void count_bytes(size_t bytes);

  OnnxFile& file_;
  ImportedNetwork result_;
  std::set<std::string> names_;
  size_t bytes_ = 0;  ///< of weights and constants
};

}  // namespace octet
