// SPDX-License-Identifier: Apache-2.0
// Random Int8Graphs for tests: every operator, every activation scheme, odd sizes, extreme numbers. The same seed gives
// the same network everywhere.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/engine/network_builder.h"

namespace octet::test {

/// Returns a network of one to three weighted nodes: input, convolutions (perhaps with a residual), logits.
Int8Graph random_convolution(uint64_t seed);
/// Returns a network of eight to sixteen nodes of every kind, with one to three outputs of codes or floats at any node.
Int8Graph random_network(uint64_t seed);
/// Returns pixels [batch, H, W, C]: noise, or extreme values only.
std::vector<uint8_t> random_images(const Int8Graph& graph, int batch, uint64_t seed);

/// Returns the seeds first, first + 1, ..., or only OCTET_TEST_SEED if that is set.
std::vector<uint64_t> test_seeds(uint64_t first, int count);

/// Returns how many random networks a test runs: OCTET_TEST_NETWORKS, or as many as each build can afford.
int network_count(int usual);

}  // namespace octet::test
