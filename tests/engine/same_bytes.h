// Do engines give the same bytes at every node? Shared by the tests of this folder.
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

/// What a run without a tap gives.
std::vector<std::vector<uint8_t>> outputs_of(Program& program, const Int8Graph& graph,
                                             const std::vector<uint8_t>& images, int batch);

Trace trace(Program& program, const Int8Graph& graph, const std::vector<uint8_t>& images, int batch);

/// "" when both are the same in every byte and cover every node, else the first difference.
std::string difference(const Int8Graph& graph, const Trace& expected, const Trace& actual);

/// Kernel paths of the cpu engine that this machine runs.
std::vector<std::string> cpu_paths();

/// Runs the graph on reference and on every cpu path; "" or what differs, where.
std::string cpu_difference(const Int8Graph& graph, const std::vector<uint8_t>& images, int batch);

}  // namespace octet::test
