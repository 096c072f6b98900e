// Whatever the bytes: a valid Int8Graph, its weights not larger than 16 times the file, or an octet::Error.
#include <cstdlib>

#include "src/common/error.h"
#include "src/onnx/import.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace octet;
  try {
    const ImportedInt8 network = parse_qdq(reinterpret_cast<const std::byte*>(data), size, "fuzz");
    size_t total = 0;
    for (const Int8Node& node : network.graph.nodes) total += node.weight.size();
    if (total > 16 * size) std::abort();
    validate(network.graph);
  } catch (const Error&) {
  }
  return 0;
}
