// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/same_bytes.h"

#include "kernels/core/cpu.h"
#include "src/engine/engine.h"

namespace octet::test {

Trace trace(Program& program, const Int8Graph& graph, const std::vector<uint8_t>& images, int batch) {
  Trace result;
  const OutputBuffers outputs(graph, batch);
  program.run(images.data(), batch, outputs.memory(), [&](int node, const void* data, size_t bytes) {
    if (node == static_cast<int>(result.nodes.size())) {
      const uint8_t* begin = static_cast<const uint8_t*>(data);
      result.nodes.emplace_back(begin, begin + bytes);
    }
  });
  result.outputs = outputs.all();
  return result;
}

std::vector<std::vector<uint8_t>> outputs_of(Program& program, const Int8Graph& graph,
                                             const std::vector<uint8_t>& images, int batch) {
  const OutputBuffers outputs(graph, batch);
  program.run(images.data(), batch, outputs.memory());
  return outputs.all();
}

std::string difference(const Int8Graph& graph, const Trace& expected, const Trace& actual) {
  if (expected.nodes.size() != graph.nodes.size() || actual.nodes.size() != graph.nodes.size()) {
    return "taps saw " + std::to_string(expected.nodes.size()) + " and " + std::to_string(actual.nodes.size()) +
           " of " + std::to_string(graph.nodes.size()) + " nodes";
  }
  for (size_t node = 0; node < graph.nodes.size(); ++node) {
    const auto &a = expected.nodes[node], &b = actual.nodes[node];
    const std::string name = "node " + std::to_string(node) + " '" + graph.nodes[node].name + "'";
    if (a.size() != b.size())
      return name + ": " + std::to_string(a.size()) + " and " + std::to_string(b.size()) + " bytes";
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i] != b[i]) {
        return name + ": byte " + std::to_string(i) + " is " + std::to_string(a[i]) + " and " + std::to_string(b[i]);
      }
    }
  }
  for (size_t output = 0; output < graph.outputs.size(); ++output) {
    if (expected.outputs.at(output) != actual.outputs.at(output)) {
      return "output " + std::to_string(output) + " '" + graph.nodes[graph.outputs[output]].name + "' differs";
    }
  }
  return "";
}

std::vector<std::string> cpu_paths() {
  std::vector<std::string> paths;
  for (const auto isa : kernels::available_cpu_isas()) paths.emplace_back(kernels::cpu_isa_name(isa));
  return paths;
}

std::string cpu_difference(const Int8Graph& graph, const std::vector<uint8_t>& images, int batch, uint64_t* hash) {
  const auto reference = find_engine("reference").compile(graph, {.max_batch = batch, .threads = 1});
  const Trace expected = trace(*reference, graph, images, batch);
  for (size_t node = 0; hash != nullptr && node < expected.nodes.size(); ++node) {
    for (const uint8_t byte : expected.nodes[node]) *hash = (*hash ^ byte) * 0x100000001b3;
  }
  for (const std::string& path : cpu_paths()) {
    const auto cpu = find_engine("cpu").compile(graph, {.max_batch = batch, .threads = 1, .kernels = path});
    const std::string found = difference(graph, expected, trace(*cpu, graph, images, batch));
    if (!found.empty()) return path + ": " + found;
    if (outputs_of(*cpu, graph, images, batch) != expected.outputs) return path + ": without a tap outputs differ";
  }
  return "";
}

}  // namespace octet::test
