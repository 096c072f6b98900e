// SPDX-License-Identifier: Apache-2.0
// Networks from ONNX files, a float Graph with its weights or an Int8Graph, and as ONNX files for other runtimes. What
// the files may contain and how operators are written is in src/net/onnx/README.md.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/names.h"
#include "src/base/safetensors.h"
#include "src/net/graph.h"
#include "src/net/int8_graph.h"

namespace octet {

/// False in builds without ONNX (-DOCTET_ONNX=OFF), where every function here throws Error(usage).
bool has_onnx();

/// Weights and constants may take this many times the bytes that were read. A byte of quantized weights takes 16: an
/// integer (8), a real (4) and the layer's weight (4); and nodes that share weights have a copy each.
inline constexpr size_t kMaxCopies = 32;

struct ImportedNetwork {
  Graph graph;           ///< with shapes; names as in the file
  TensorFile weights;    ///< float32, by the names of parameters(graph)
  std::string producer;  ///< "pytorch 2.11.0"
  int opset = 0;
  std::string unlike;      ///< how its input or an output differs from the file's; "": values in the same places
  int own_image_size = 0;  ///< height and width in the file, if image_size stands in their place; else 0
  std::vector<std::string> notes;  ///< for people: what was left out or expressed differently
};

/// A network that is refused for an operator behind all layers, such as a detector's decoding: it could be imported up
/// to the values `end_at`, which are no longer joined (Concat) or squashed (Sigmoid).
class OnnxEndsTooLate : public Error {
 public:
  OnnxEndsTooLate(const Error& error, std::vector<std::string> end_at) : Error(error), end_at(std::move(end_at)) {}
  std::vector<std::string> end_at;    ///< in the order of the file
  std::vector<std::string> left_out;  ///< the operators behind them
};

/// Imports a float network. `outputs` are names of values that become the outputs, in this order, in place of the
/// file's own; nodes after them are left out. `image_size` is the height and width of the images, also in place of a
/// square size in the file; 0 refuses a file that leaves them open. External data is read from the file's own folder
/// only. Throws Error(data) naming the file and the node for damaged files and for operators that octet does not have;
/// if these come after all layers, it is an OnnxEndsTooLate. Throws Error(usage) for `outputs` that no node gives.
ImportedNetwork import_onnx(const std::string& path, const std::vector<std::string>& outputs = {}, int image_size = 0);

/// Imports a file that is in memory, without external data; `name` stands for the path in messages.
ImportedNetwork parse_onnx(const std::byte* data, size_t size, const std::string& name,
                           const std::vector<std::string>& outputs = {}, int image_size = 0);

/// Gives the outputs of an int8 network the names that a file has for them (Graph::file_outputs), which programs know:
/// its layers and functions are called otherwise. A name that another node has, or that is no text, is not taken.
void name_outputs(Int8Graph& graph, const std::vector<std::string>& names);

/// Returns what an ONNX file is and which commands take it: "a float network; octet quantize FILE ...", "a
/// quantized network; octet run ...". Throws Error(data) if it is not an ONNX file.
std::string describe_onnx(const std::string& path);

/// Whether an ONNX file is a float network; else it is quantized, in whatever form. Throws Error(data) if it is not an
/// ONNX file.
bool is_float_onnx(const std::string& path);

struct ImportedInt8 {
  Int8Graph graph;                 ///< validated; nodes have the names of the file
  std::vector<std::string> codes;  ///< for each node the file's name of its codes; "": the file has none
  std::vector<std::string> notes;  ///< for people: what differs from the file
};

/// Imports a quantized network (QDQ) as it is, without calibration or training. mean and std are taken from files that
/// octet wrote; for others they are 0 and 1, pixels being in 0..1. Throws Error(data) naming the file and the node if
/// an activation has no scale or an Int8Graph cannot express the node. `outputs` as in import_onnx().
ImportedInt8 import_qdq(const std::string& path, const std::vector<std::string>& outputs = {});
ImportedInt8 parse_qdq(const std::byte* data, size_t size, const std::string& name);

/// The runtime for which a QDQ form is written. Biases are float32, as in octet; int32_bias rounds them to int32 codes,
/// for runtimes whose int8 kernels need that (ONNX Runtime before 1.21). TensorRT takes symmetric int8 activations
/// only.
enum class OnnxProfile { onnxruntime, openvino, tensorrt, int32_bias };
inline constexpr std::array<Named<OnnxProfile>, 4> kOnnxProfiles = {{
    {OnnxProfile::onnxruntime, "onnxruntime"},
    {OnnxProfile::openvino, "openvino"},
    {OnnxProfile::tensorrt, "tensorrt"},
    {OnnxProfile::int32_bias, "int32_bias"},
}};

struct OnnxOptions {
  OnnxProfile profile = OnnxProfile::onnxruntime;
  int opset = 13;  ///< 13 or 21
};

/// Returns the bytes of a QDQ model, in which every activation has its own scale and weights are int8 with a scale for
/// each channel. Without Int8Graph::own_names the input is called "images", and a single output "logits". `codes`
/// becomes for each node the model's name of its codes, "" for reals. `notes` becomes lines for
/// people: where int8 runtimes, whose biases are int32, give other codes, and where a scale was raised to prevent that
/// (src/net/onnx/qdq_limits.cpp). Throws Error(usage) naming a node that the profile or ONNX cannot express, and
/// Error(promise) if the model for TensorRT breaks one of its rules.
std::string write_qdq(const Int8Graph& graph, const OnnxOptions& options, std::vector<std::string>* codes = nullptr,
                      std::vector<std::string>* notes = nullptr);

/// Returns what TensorRT's published rules for QDQ models refuse in a file: one line for each rule that is broken, with
/// the first node that breaks it, the rule and its source. Empty: all are kept, as write_qdq() makes sure of for
/// profile tensorrt. Throws Error(data) for what is no ONNX model, and for float networks.
std::vector<std::string> tensorrt_faults(const std::string& path);
std::vector<std::string> tensorrt_faults(const std::byte* data, size_t size, const std::string& name);

/// Returns the bytes of a float model, with its BatchNorms. A network from a file keeps the file's names of its input
/// and outputs, as write_qdq() does. `weights` has the tensors of parameters(graph).
std::string write_float(const Graph& graph, const TensorFile& weights, const Preprocessing& preprocessing, int opset);

/// A QDQ model that also outputs the codes of its activations, to compare another runtime's codes with octet's.
struct ShownCodes {
  std::string model;  ///< the bytes
  /// The name of the model's output that has the codes of each node of the Int8Graph, or the reals of a float output,
  /// as [N, C, H, W] or [N, C]. "": the model has no such value, or has it in another order (after a Flatten of several
  /// pixels).
  std::vector<std::string> outputs;
};

/// Shows the codes of the model that write_qdq() makes of the graph, and throws like it.
ShownCodes show_codes(const Int8Graph& graph);

/// Shows of a file its outputs alone, or `outputs`, values of the file. In ShownCodes::outputs they follow an input.
/// Throws as the next one does.
ShownCodes show_outputs(const std::string& path, std::vector<std::string> outputs);

/// Shows the codes of the file that `imported` comes from. Throws Error(data) if its weights are external data.
ShownCodes show_codes(const ImportedInt8& imported, const std::string& path);

}  // namespace octet
