// What float and quantized networks have in common: nodes of the file become nodes of a Graph.
#pragma once

#include <string>
#include <vector>

#include "src/onnx/network.h"

namespace octet {

OnnxFile open_onnx_file(const std::string& path);

/// `outputs`, `image_size`: as import_onnx() has them. `marks`: what a quantized network says of its edges and weights
/// goes there; null: a float network, where a QuantizeLinear is refused.
ImportedNetwork import_file(OnnxFile& file, const std::vector<std::string>& outputs, QdqMarks* marks,
                            int image_size = 0);

}  // namespace octet
