// A dump of every node's codes for some images, for the witness (tools/verify_checkpoint.py --against DUMP) and for
// looking closer. One safetensors file: "images" U8 [N, H, W, C], and of every node [N, H, W, C]: "codes/<node>" I8 or
// U8, or "values/<node>" F32 where it gives floats.
#pragma once

#include <string>

#include "src/graph/int8_graph.h"
#include "src/tensor_files/tensor_data.h"

namespace octet {

class CodeDump {
 public:
  explicit CodeDump(const Int8Graph& graph);

  /// pixels: uint8 [batch, H, W, C], the batch that runs next.
  void add_images(const uint8_t* pixels, int batch);

  /// What an engine's tap gets: bytes of `node` for the batch, codes or float32 [batch, H, W, C].
  void add(int node, const void* data, size_t bytes);

  void write(const std::string& path) const;  ///< throws Error(data)

 private:
  void append(const std::string& key, const void* data, size_t bytes);

  std::vector<std::string> keys_;  ///< by node
  int images_ = 0;
  TensorFile file_;
};

}  // namespace octet
