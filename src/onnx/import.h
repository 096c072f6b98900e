// A network from an ONNX file: the float Graph and its weights. What the files may hold: src/onnx/README.md.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "src/graph/graph.h"
#include "src/graph/int8_graph.h"
#include "src/tensor_files/tensor_data.h"

namespace octet {

/// False in builds without ONNX (-DOCTET_ONNX=OFF), where every function here throws Error(usage).
bool has_onnx();

/// Weights and constants of a file take at most so many times the bytes that were read: of quantized weights a byte is
/// 16, as an integer (8), as a real (4) and as a layer's own (4), and nodes that share weights have a copy each.
inline constexpr size_t kMostCopies = 32;

struct ImportedNetwork {
  Graph graph;                     ///< with shapes; names as in the file
  TensorFile weights;              ///< float32, by the names of parameters(graph)
  std::string producer;            ///< "pytorch 2.11.0"
  int opset = 0;                   ///< of ONNX's own operators
  std::vector<std::string> notes;  ///< what was left out or said in another way, for people
};

/// `outputs`: values of the file, by name, that the network gives, in this order, in place of the file's outputs; what
/// stands behind them is left out. Empty: the file's own. `image_size`: height and width of the images, where the file
/// leaves them open; 0: refused then. Throws Error(data) naming the file and the node: damaged
/// files, operators that octet does not have (and before which values the network could end, where these stand behind
/// all layers); Error(usage) for `outputs` that no node gives. External data is read from the file's own folder only.
ImportedNetwork import_onnx(const std::string& path, const std::vector<std::string>& outputs = {}, int image_size = 0);

/// The same from memory, without external data (fuzzing, tests); `name` stands for the path in messages.
ImportedNetwork parse_onnx(const std::byte* data, size_t size, const std::string& name,
                           const std::vector<std::string>& outputs = {}, int image_size = 0);

/// What an ONNX file is and which commands take it, for messages: "a float network; octet train RECIPE --set ...", "a
/// quantized network; octet run ...". Throws Error(data) for what is no ONNX file.
std::string describe_onnx(const std::string& path);

struct ImportedInt8 {
  Int8Graph graph;                 ///< validated; nodes are named as in the file
  std::vector<std::string> codes;  ///< by node, what the file calls its codes; "": it has none of this node
  std::vector<std::string> notes;  ///< what differs from the file, for people
};

/// A quantized network (QDQ) as it is, without calibration or training. mean and std are those that octet writes into
/// its files; others are read as pictures of 0..1. Throws Error(data) naming file and node where a scale is missing on
/// an edge, or what it says is nothing an Int8Graph can.
ImportedInt8 import_qdq(const std::string& path);
ImportedInt8 parse_qdq(const std::byte* data, size_t size, const std::string& name);

}  // namespace octet
