// SPDX-License-Identifier: Apache-2.0
// Networks as ONNX files, for other runtimes. How operators are written is in src/net/onnx/README.md.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "src/base/names.h"
#include "src/base/safetensors.h"
#include "src/net/graph.h"
#include "src/net/int8_graph.h"
#include "src/net/onnx/import.h"

namespace octet {

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
/// (src/net/onnx/qdq_limits.h). Throws Error(usage) naming a node that the profile or ONNX cannot express, and
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
  /// For each node of the Int8Graph the model's output with its codes, or the reals of a float output, as [N, C, H, W]
  /// or [N, C]. "": the model has no such value, or has it in another order (after a Flatten of several pixels).
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
