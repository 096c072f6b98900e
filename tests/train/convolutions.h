// SPDX-License-Identifier: Apache-2.0
// Random convolutions of codes and their sums in int64.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "src/net/graph.h"

namespace octet::test {

struct Convolution {
  at::Tensor x;       ///< centred codes, float32 [N, C, H, W]
  at::Tensor weight;  ///< codes, float32 [K, C / groups, R, S]
  Window window;
  int groups = 1;
};

/// Returns a convolution with groups of any kind, depthwise with multiplier too, and different padding on every side;
/// sums stay under 2^24.
Convolution random_convolution(uint64_t seed);

/// Returns one with sums between 2^24 and 2^31, half of them odd, so that float32 cannot hold them.
Convolution large_convolution(int groups);

at::Tensor sums_of(const Convolution& convolution);  ///< int64 [N, K, OH, OW], by loops

}  // namespace octet::test
