// SPDX-License-Identifier: Apache-2.0
// Of which pixels, with which weights, resize() makes a row or column of its output. Whatever resizes by this filter,
// in fixed point and with columns rounded to 8 bits before rows, gives the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace octet {

/// Weights are fixed point with 22 bits: a sum of 255 * weights that add up to one fits into int32.
inline constexpr int kFilterBits = 22;

/// For each output position: `count` inputs from `first` on, and their weights.
struct ResizeFilter {
  int taps = 0;
  std::vector<int> first, count;
  std::vector<int32_t> weights;  ///< [outputs, taps], of which `count` are used

  size_t outputs() const { return first.size(); }
};

/// Returns the filter of one axis of resize(). With as many outputs as inputs it is the identity.
ResizeFilter triangle_filter(int inputs, int outputs);

}  // namespace octet
