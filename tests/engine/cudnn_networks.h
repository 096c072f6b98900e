// SPDX-License-Identifier: Apache-2.0
// What the tests of engines cudnn and cutlass share: networks with symmetric_s8 codes, which both run, what their codes
// are compared with, and what both refuse alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/net/int8_graph.h"
#include "tests/engine/same_bytes.h"

namespace octet::test {

/// Returns input > two convolutions, the second with a residual and ReLU or ReLU6 > a strided one > pool > linear.
/// Channels, windows and image size are random.
Int8Graph residual_network(uint64_t seed);

/// Returns a network of the zoo with random weights.
Int8Graph zoo_network(const char* model, int size, uint64_t seed);

/// Counts codes of conv2d nodes that differ from the reference's for the same input codes, so that a layer's own
/// difference counts, not those of earlier layers.
struct LayerDifference {
  long codes = 0, differing = 0;
  int largest = 0;  ///< largest difference in LSB
};
LayerDifference layer_difference(const Int8Graph& graph, const Trace& trace, int batch);

/// What engine cudnn or cutlass computed for two random images.
struct PeerRun {
  Trace shown;
  LayerDifference found;
};

/// Runs an engine and prints how many codes differ. Fails the test if a run without a tap, which replays a CUDA graph,
/// gives other outputs.
PeerRun run_peer(const char* engine, const CompileOptions& options, const Int8Graph& graph, uint64_t seed);

/// Returns the logits that the reference's last linear gives for its input codes in `trace`.
std::vector<uint8_t> logits_of_last_codes(const Int8Graph& graph, const Trace& trace, int batch);

/// Returns why the engine does not support the node of that name, or "". Needs no GPU.
std::string reason(const char* engine, const Int8Graph& graph, const std::string& name);

/// Expects an error without a fallback, which names the input node and the cure.
void expect_needs_fallback(const char* engine);

/// Expects Error(usage) for an unknown fallback and for unknown kernels. Needs no GPU.
void expect_refuses_unknown_options(const char* engine);

}  // namespace octet::test
