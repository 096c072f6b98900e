// SPDX-License-Identifier: Apache-2.0
// A network with random weights and all that convert needs, without LibTorch: ranges of one random image.
#pragma once

#include <vector>

#include "src/net/int8_graph.h"
#include "src/quant/node_constants.h"
#include "src/quant/plan.h"
#include "tests/quant/walks.h"

namespace octet::testing {

/// Returns a preprocessing with mean 0.45 and deviation 0.22 for each channel of the network's input.
Preprocessing preprocessing_of(const Graph& graph);

/// A network quantized by one image: the range of every edge is that of its values, and the scale of every weight that
/// of its largest value.
struct QuantizedNetwork {
  Graph written;  ///< before fuse
  Prepared prepared;
  FloatParams params, scales;
  std::vector<QParams> edges;
  std::vector<uint8_t> pixels;

  QuantizedNetwork(const Graph& graph, const QuantSpec& spec, uint64_t seed = 21);
  Image image() const;
  Int8Graph converted() const;
};

}  // namespace octet::testing
