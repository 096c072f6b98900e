// A network with random weights and all that convert needs, without LibTorch: ranges of one random picture.
#pragma once

#include <vector>

#include "src/graph/int8_graph.h"
#include "src/quant/float_params.h"
#include "src/quant/prepare.h"
#include "tests/quant/walks.h"

namespace octet::testing {

/// Of a network's channels, each 0.45 and 0.22.
Preprocessing preprocessing_of(const Graph& graph);

/// Every edge has the least and the largest value of one picture as its range, every weight the scale of its largest.
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
