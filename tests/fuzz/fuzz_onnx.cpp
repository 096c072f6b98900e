// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes: a network that stands by its graph, its weights not larger than kMaxCopies times the file,
// or an octet::Error.
#include <cstdlib>

#include "src/base/error.h"
#include "src/net/onnx/onnx.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace octet;
  try {
    const ImportedNetwork network = parse_onnx(reinterpret_cast<const std::byte*>(data), size, "fuzz");
    size_t total = 0;
    for (const ParameterSpec& parameter : parameters(network.graph))
      total += network.weights.tensors.at(parameter.name).bytes.size();
    if (total > kMaxCopies * size) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
