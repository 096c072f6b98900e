// SPDX-License-Identifier: Apache-2.0
// Compares engines byte by byte at every node.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/engine/engine.h"

namespace octet::test {

/// The output of every node as a tap shows it, and what run() gives.
struct Trace {
  std::vector<std::vector<uint8_t>> nodes, outputs;
};

/// Returns what a run without a tap gives.
std::vector<std::vector<uint8_t>> outputs_of(Program& program, const Int8Graph& graph,
                                             const std::vector<uint8_t>& images, int batch);

Trace trace(Program& program, const Int8Graph& graph, const std::vector<uint8_t>& images, int batch);

/// Returns "" if both are the same in every byte and cover every node, else the first difference.
std::string difference(const Int8Graph& graph, const Trace& expected, const Trace& actual);

/// Returns the kernel paths of the cpu engine that this machine runs.
std::vector<std::string> cpu_paths();

/// Runs the graph on the reference and on every cpu path; returns "" or what differs, and where. `hash`, if given, goes
/// on over the bytes of all nodes (FNV-1a, 64 bits), so that machines can be compared.
std::string cpu_difference(const Int8Graph& graph, const std::vector<uint8_t>& images, int batch,
                           uint64_t* hash = nullptr);

}  // namespace octet::test
