// SPDX-License-Identifier: Apache-2.0
// A network with attention of two heads, whose values are added to what it mixes of them.
#pragma once

#include "src/net/zoo.h"
#include "src/quant/convert.h"

namespace octet::test {

inline Int8Graph with_attention(ActivationScheme scheme, double scale = 0.7) {
  ModelSpec spec;
  spec.name = "graph";
  spec.input = {3, 6, 5};
  spec.graph = {{"qkv", "conv2d", {}, {{"out_channels", 20}, {"kernel", 3}, {"pad", 1}}},
                {"queries", "slice", {"qkv"}, {{"first_channel", 0}, {"out_channels", 6}}},
                {"keys", "slice", {"qkv"}, {{"first_channel", 6}, {"out_channels", 6}}},
                {"values", "slice", {"qkv"}, {{"first_channel", 12}, {"out_channels", 8}}},
                {"scores", "matmul", {"queries", "keys"}, {{"groups", 2}, {"transposed", 1}, {"scale", scale}}},
                {"shares", "softmax", {}, {{"groups", 2}}},
                {"mixed", "matmul", {"shares", "values"}, {{"groups", 2}}},
                {"sum", "add", {"mixed", "values"}, {}},
                {"gap", "global_avg_pool", {}, {}},
                {"fc", "linear", {}, {{"out_channels", 10}}}};
  QuantSpec quant;
  quant.activation = scheme;
  return random_int8_graph(build_model(spec), quant, 4);
}

}  // namespace octet::test
