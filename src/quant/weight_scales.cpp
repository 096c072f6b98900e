// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/training/fake_quantize.h"
#include "kernels/training/observe.h"
#include "kernels/training/weights.h"
#include "src/base/error.h"
#include "src/quant/weight_scales.h"

namespace octet {
namespace {

kernels::WeightReach reach_of(const float* weight, size_t count) {
  const kernels::ValueRange range = kernels::find_range(weight, count);
  if (!range.finite) {
    const float* first = std::find_if_not(weight, weight + count, [](float w) { return std::isfinite(w); });
    throw promise_error("weight " + std::to_string(first - weight) + " is not finite");
  }
  return {std::max(0.0f, -range.lo), std::max(0.0f, range.hi)};
}

/// Returns search(row, count) for each channel, or its result for the whole tensor, repeated.
template <typename Search>
std::vector<float> scales_of_rows(const float* weight, int channels, long per_channel, Granularity granularity,
                                  const Search& search) {
  const size_t rows = static_cast<size_t>(channels), row = static_cast<size_t>(per_channel);
  if (granularity == Granularity::per_tensor) return std::vector<float>(rows, search(weight, rows * row));
  std::vector<float> scales;
  for (size_t k = 0; k < rows; ++k) scales.push_back(search(weight + k * row, row));
  return scales;
}

/// Returns the shrunk scale of least squared error, by a coarse search and then a fine one around the best.
float best_scale(const float* weight, size_t count, const WeightCodes& codes) {
  const kernels::WeightReach full = reach_of(weight, count);
  if (full.below == 0 && full.above == 0) return kernels::scale_of_reach(full, codes);
  double best_factor = 1, best_error = INFINITY;
  const auto attempt = [&](const kernels::ShrinkFactors& factors) {
    for (int i = 0; i < factors.count; ++i) {
      const float scale = kernels::shrunk_scale(full, factors.factor[i], codes);
      const double error = kernels::squared_error(weight, count, codes.qparams(scale));
      if (error < best_error) {
        best_error = error;
        best_factor = factors.factor[i];
      }
    }
  };
  attempt(kernels::coarse_factors());
  attempt(kernels::fine_factors(best_factor));
  return kernels::shrunk_scale(full, best_factor, codes);
}

}  // namespace

std::vector<float> weight_scales(const float* weight, int channels, long per_channel, const WeightSpec& spec) {
  return scales_of_rows(weight, channels, per_channel, spec.granularity, [&](const float* row, size_t count) {
    return kernels::scale_of_reach(reach_of(row, count), spec.codes);
  });
}

std::vector<float> weight_scales_mse(const float* weight, int channels, long per_channel, const WeightSpec& spec) {
  return scales_of_rows(weight, channels, per_channel, spec.granularity,
                        [&](const float* row, size_t count) { return best_scale(row, count, spec.codes); });
}

}  // namespace octet
