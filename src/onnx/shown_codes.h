// A QDQ model that gives the codes of its edges beside its outputs, for whoever holds another runtime's codes against
// octet's.
#pragma once

#include <string>
#include <vector>

#include "src/graph/int8_graph.h"
#include "src/onnx/import.h"

namespace octet {

struct ShownCodes {
  std::string model;  ///< the bytes
  /// By node of the Int8Graph, the model's output that holds what the node gives: codes, or reals of a float output,
  /// [N, C, H, W] or [N, C]. "": the model has no such value, or has it in another order (behind a Flatten of several
  /// pixels).
  std::vector<std::string> outputs;
};

/// Of the model that write_qdq() makes of the graph; throws as it does.
ShownCodes show_codes(const Int8Graph& graph);

/// Of the file that `imported` was made of. Throws Error(data) for one whose weights lie in other files.
ShownCodes show_codes(const ImportedInt8& imported, const std::string& path);

}  // namespace octet
