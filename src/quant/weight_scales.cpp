#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/fake_quantize/fake_quantize.h"
#include "src/common/error.h"
#include "src/quant/calibrator.h"
#include "src/quant/fuse.h"

namespace octet {
namespace {

float max_magnitude(const float* weight, size_t count) {
  float largest = 0;
  for (size_t i = 0; i < count; ++i) {
    if (!std::isfinite(weight[i])) throw promise_error("weight " + std::to_string(i) + " is not finite");
    largest = std::max(largest, std::fabs(weight[i]));
  }
  return largest;
}

float scale_of(float magnitude, int largest) {
  if (magnitude == 0) return 1.0f / static_cast<float>(largest);
  return std::max(magnitude / static_cast<float>(largest), kSmallestScale);
}

/// Calls search(row, count) for each channel, or once for the whole tensor.
template <typename Search>
std::vector<float> scales_of_rows(const float* weight, int channels, long per_channel, const QuantSpec& spec,
                                  const Search& search) {
  const size_t rows = static_cast<size_t>(channels), row = static_cast<size_t>(per_channel);
  if (spec.weight_granularity == Granularity::per_tensor) return std::vector<float>(rows, search(weight, rows * row));
  std::vector<float> scales;
  for (size_t k = 0; k < rows; ++k) scales.push_back(search(weight + k * row, row));
  return scales;
}

/// Least squared error among shrunk ranges: a coarse pass over the whole span, then a fine one around its best. Few
/// bits want much narrower ranges than eight do, hence the span down to 0.2.
float best_scale(const float* weight, size_t count, int largest) {
  const float full = max_magnitude(weight, count);
  if (full == 0) return scale_of(full, largest);
  constexpr double kCoarse = 0.04, kFine = 0.005, kLeast = 0.2;
  double best_factor = 1, best_error = INFINITY;
  const auto attempt = [&](double factor) {
    const float scale = scale_of(static_cast<float>(full * factor), largest);
    const double error = kernels::squared_error(weight, count, {scale, 0, -largest, largest});
    if (error < best_error) {
      best_error = error;
      best_factor = factor;
    }
  };
  for (int i = 0; 1 - i * kCoarse >= kLeast; ++i) attempt(1 - i * kCoarse);
  const double centre = best_factor;
  for (double offset = kFine; offset < kCoarse; offset += kFine) {
    if (centre + offset <= 1) attempt(centre + offset);
    attempt(centre - offset);
  }
  return scale_of(static_cast<float>(full * best_factor), largest);
}

}  // namespace

std::vector<float> weight_scales(const float* weight, int channels, long per_channel, const QuantSpec& spec) {
  return scales_of_rows(weight, channels, per_channel, spec, [&](const float* row, size_t count) {
    return scale_of(max_magnitude(row, count), weight_bound(spec.weight_bits));
  });
}

std::vector<float> weight_scales_mse(const float* weight, int channels, long per_channel, const QuantSpec& spec) {
  return scales_of_rows(weight, channels, per_channel, spec, [&](const float* row, size_t count) {
    return best_scale(row, count, weight_bound(spec.weight_bits));
  });
}

}  // namespace octet
