// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes: a valid Int8Graph or an octet::Error. Of each code the reader counted a float before.
#include <cstdlib>

#include "src/base/error.h"
#include "src/net/onnx/onnx.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace octet;
  try {
    const ImportedInt8 network = parse_qdq(reinterpret_cast<const std::byte*>(data), size, "fuzz");
    size_t total = 0;
    for (const Int8Node& node : network.graph.nodes) total += node.weight.size();
    if (total > kMaxCopies / sizeof(float) * size) std::abort();
    validate(network.graph);
  } catch (const Error&) {
  }
  return 0;
}
