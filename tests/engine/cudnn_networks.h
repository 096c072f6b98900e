// Networks with symmetric_s8 edges, which the cudnn engine runs, and what its codes are compared with.
#pragma once

#include <cstdint>

#include "src/graph/int8_graph.h"
#include "tests/engine/same_bytes.h"

namespace octet::test {

/// input > two convolutions, the second with a residual and ReLU or ReLU6 > a strided one > pool > linear. Channels,
/// windows and image size are random.
Int8Graph residual_network(uint64_t seed);

/// A network of the zoo with random weights.
Int8Graph zoo_network(const char* model, int size, uint64_t seed);

/// Codes of conv2d nodes that differ from the reference's on the same input codes: one layer's own difference, not
/// what earlier ones left.
struct LayerDifference {
  long codes = 0, differing = 0;
  int largest = 0;  ///< LSB
};
LayerDifference layer_difference(const Int8Graph& graph, const Trace& trace, int batch);

/// What a peer's engine gave for two random images.
struct PeerRun {
  Trace shown;
  LayerDifference found;
};

/// Prints how many codes differ. Fails the test when a run without a tap, whose launches are a CUDA graph's, gives
/// other outputs.
PeerRun run_peer(const char* engine, const CompileOptions& options, const Int8Graph& graph, uint64_t seed);

/// The reference's logits of the last linear for the codes that `trace` fed it.
std::vector<uint8_t> logits_of_last_codes(const Int8Graph& graph, const Trace& trace, int batch);

}  // namespace octet::test
