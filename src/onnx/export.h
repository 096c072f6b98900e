// Networks as ONNX files, for other runtimes. What is written how: src/onnx/README.md.
#pragma once

#include <string>
#include <vector>

#include "src/common/named.h"
#include "src/graph/graph.h"
#include "src/graph/int8_graph.h"
#include "src/tensor_files/tensor_data.h"

namespace octet {

/// Whose QDQ form is written. Biases are float32, as octet has them; int32_bias rounds them to int32 codes, for
/// runtimes that run int8 kernels with such biases only (ONNX Runtime before 1.21). TensorRT takes symmetric int8
/// activations.
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

/// The bytes of a QDQ model: every edge of the Int8Graph quantized with its own scale, weights as int8 a channel.
/// Throws Error(usage) naming the node that the profile or ONNX cannot express. `codes`: becomes, by node, what the
/// model calls its codes; "" for reals. `notes`: gets a line for people where int8 runtimes, whose biases are int32,
/// will give other codes, or where a scale was raised so that they do not (src/onnx/qdq_biases.h).
std::string write_qdq(const Int8Graph& graph, const OnnxOptions& options, std::vector<std::string>* codes = nullptr,
                      std::vector<std::string>* notes = nullptr);

/// The bytes of the float network; `weights` by the names of parameters(graph). BatchNorms stay.
std::string write_float(const Graph& graph, const TensorFile& weights, const Preprocessing& preprocessing, int opset);

}  // namespace octet
