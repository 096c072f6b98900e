// SPDX-License-Identifier: Apache-2.0
// Quantized networks as octet reads them, and every code that they give.
#pragma once

#include <map>

#include "src/engine/engine.h"
#include "src/net/onnx/onnx.h"
#include "tests/net/onnx/model_builder.h"

namespace octet::test {

inline constexpr int kBatch = 2;

inline ImportedInt8 parsed(const std::string& bytes) {
  return parse_qdq(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), "test.onnx");
}

/// Every node's bytes, by name.
inline std::map<std::string, std::vector<uint8_t>> codes_of(const Int8Graph& graph,
                                                            const std::vector<uint8_t>& pixels) {
  std::map<std::string, std::vector<uint8_t>> codes;
  const OutputBuffers outputs(graph, kBatch);
  find_engine("reference")
      .compile(graph, {.max_batch = kBatch})
      ->run(pixels.data(), kBatch, outputs.memory(), [&](int n, const void* data, size_t bytes) {
        const auto* first = static_cast<const uint8_t*>(data);
        codes[n == 0 ? "input codes" : graph.nodes[static_cast<size_t>(n)].name].assign(first, first + bytes);
      });
  return codes;
}

/// `name` as codes and back, under the name "<name>_q".
inline void quantized(ModelBuilder& model, const std::string& name, const std::string& scale, const std::string& zero) {
  model.node("QuantizeLinear", {name, scale, zero}, name + "_codes");
  model.node("DequantizeLinear", {name + "_codes", scale, zero}, name + "_q");
}

}  // namespace octet::test
