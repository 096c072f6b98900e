// SPDX-License-Identifier: Apache-2.0
// An ONNX file: the model as protobuf reads it, checked before anything is made of it, and its constants, which are
// weights and the integers of shape arithmetic.
#pragma once

#include <google/protobuf/arena.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "onnx.pb.h"

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

}  // namespace octet
