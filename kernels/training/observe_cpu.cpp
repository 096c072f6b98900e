// SPDX-License-Identifier: Apache-2.0
#include "kernels/training/observe.h"

#include <array>
#include <vector>

#include "kernels/core/cpu.h"

namespace octet::kernels {
namespace {

constexpr size_t kBlock = 1024;

/// Writes the bin of each value. This loop vectorizes, which counting cannot.
OCTET_CLONES void find_bins(const float* x, size_t count, float inverse_width, int32_t first, int32_t* bin) {
  for (size_t i = 0; i < count; ++i) bin[i] = bin_of(x[i], inverse_width, first);
}

}  // namespace

OCTET_CLONES ValueRange find_range(const float* x, size_t count) {
  constexpr size_t kLanes = 16;
  // A product with zero is NaN for NaN and infinity; so they are found without a branch.
  float lo[kLanes], hi[kLanes], zero[kLanes];
  for (size_t lane = 0; lane < kLanes; ++lane) {
    lo[lane] = hi[lane] = x[0];
    zero[lane] = 0.0f;
  }
  const auto take = [&](size_t lane, float value) {
    lo[lane] = value < lo[lane] ? value : lo[lane];
    hi[lane] = value > hi[lane] ? value : hi[lane];
    zero[lane] += value * 0.0f;
  };
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) take(lane, x[i + lane]);
  }
  for (; i < count; ++i) take(i % kLanes, x[i]);
  ValueRange range{lo[0], hi[0], true};
  for (size_t lane = 0; lane < kLanes; ++lane) {
    range.lo = std::min(range.lo, lo[lane]);
    range.hi = std::max(range.hi, hi[lane]);
    range.finite = range.finite && zero[lane] == 0.0f;
  }
  return range;
}

void add_to_histogram(const float* x, size_t count, const Bins& bins, double* counts) {
  // Four tables, because an increment of a counter waits for the previous one, and half of all values may be zero.
  constexpr size_t kTables = 4;
  const size_t size = static_cast<size_t>(bins.count);
  std::vector<uint64_t> tables(kTables * size);
  std::array<int32_t, kBlock> bin;
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t block = std::min(kBlock, count - at);
    find_bins(x + at, block, 1.0f / bins.width, bins.first, bin.data());
    for (size_t i = 0; i < block; ++i) ++tables[(i % kTables) * size + static_cast<size_t>(bin[i])];
  }
  for (size_t i = 0; i < tables.size(); ++i) counts[i % size] += static_cast<double>(tables[i]);
}

}  // namespace octet::kernels
