// Networks as ONNX files, for other runtimes. What is written how: src/onnx/README.md.
#pragma once

#include <string>
#include <vector>

#include "src/common/named.h"
#include "src/graph/graph.h"
#include "src/graph/int8_graph.h"
#include "src/tensor_files/tensor_data.h"

namespace octet {

/// Whose QDQ form is written: TensorRT takes symmetric int8 activations and float biases, OpenVINO folds float biases,
/// ONNX Runtime runs int8 kernels where the bias is int32.
enum class OnnxProfile { onnxruntime, openvino, tensorrt };
inline constexpr std::array<Named<OnnxProfile>, 3> kOnnxProfiles = {{
    {OnnxProfile::onnxruntime, "onnxruntime"},
    {OnnxProfile::openvino, "openvino"},
    {OnnxProfile::tensorrt, "tensorrt"},
}};

struct OnnxOptions {
  OnnxProfile profile = OnnxProfile::onnxruntime;
  int opset = 13;  ///< 13 or 21
};

/// The bytes of a QDQ model: every edge of the Int8Graph quantized with its own scale, weights as int8 a channel.
/// Throws Error(usage) naming the node that the profile or ONNX cannot express.
std::string write_qdq(const Int8Graph& graph, const OnnxOptions& options);

/// The bytes of the float network; `weights` by the names of parameters(graph). BatchNorms stay.
std::string write_float(const Graph& graph, const TensorFile& weights, const Preprocessing& preprocessing, int opset);

}  // namespace octet
