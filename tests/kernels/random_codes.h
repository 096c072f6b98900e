// SPDX-License-Identifier: Apache-2.0
// Random codes, edges and strides for tests of the GPU's operators.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/conv/conv2d.h"
#include "kernels/core/codes.h"

namespace octet::kernels::testing {

inline int uniform(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

template <size_t N>
int one_of(std::mt19937& random, const int (&values)[N]) {
  return values[random() % N];
}

/// All 256 codes, the extreme ones often.
inline std::vector<uint8_t> random_codes(std::mt19937& random, size_t count) {
  std::vector<uint8_t> codes(count);
  for (uint8_t& code : codes) {
    const unsigned bits = random();
    code = bits >> 8 & 7 ? bits & 0xFF : (bits & 1 ? 0xFF : 0x80) ^ (bits & 2 ? 0x80 : 0);
  }
  return codes;
}

/// The engine's stride, none, or any.
inline int random_stride(std::mt19937& random, int channels) {
  const int kind = uniform(random, 0, 3);
  return kind <= 1 ? cuda_channel_stride(channels) : kind == 2 ? channels : channels + uniform(random, 1, 40);
}

inline CodeInput random_input(std::mt19937& random) {
  const bool is_signed = random() & 1;
  const int zero_points[] = {0, 255, 128, uniform(random, 0, 255)};
  return {zero_points[uniform(random, 0, 3)] - (is_signed ? 128 : 0), is_signed};
}

inline CodeOutput random_output(std::mt19937& random) {
  const CodeInput edge = random_input(random);
  const int lowest = edge.is_signed ? -128 : 0;
  const int low = random() & 1 ? lowest : uniform(random, lowest, lowest + 100);
  const int high = random() & 1 ? lowest + 255 : uniform(random, low, lowest + 255);
  return {edge.zero_point, low, high, edge.is_signed};
}

}  // namespace octet::kernels::testing
