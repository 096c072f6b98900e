#include <algorithm>

#include "kernels/pool_int8/pool_int8.h"

namespace octet::kernels {
namespace {

// Folds the codes of one window, padding left out: result = fold(result, xq).
template <typename Code, typename Fold>
int32_t fold_window(const PoolShape& s, const Code* x, int out_row, int out_column, int channel, int32_t start,
                    const Fold& fold) {
  int32_t result = start;
  for (int r = 0; r < s.kernel_h; ++r) {
    const int row = out_row * s.stride_h - s.pad_h + r;
    if (row < 0 || row >= s.in_h) continue;
    for (int q = 0; q < s.kernel_w; ++q) {
      const int column = out_column * s.stride_w - s.pad_w + q;
      if (column < 0 || column >= s.in_w) continue;
      const ptrdiff_t pixel = static_cast<ptrdiff_t>(row) * s.in_w + column;
      result = fold(result, static_cast<int32_t>(x[pixel * s.in_stride + channel]));
    }
  }
  return result;
}

// Calls body(output row, output column, channel, output index) for every output.
template <typename Body>
void for_each_output(const PoolShape& s, const Body& body) {
  for (int row = 0; row < s.out_h; ++row) {
    for (int column = 0; column < s.out_w; ++column) {
      const ptrdiff_t pixel = static_cast<ptrdiff_t>(row) * s.out_w + column;
      for (int channel = 0; channel < s.channels; ++channel) {
        body(row, column, channel, pixel * s.out_stride + channel);
      }
    }
  }
}

template <typename Code>
void max_pool(const PoolShape& shape, const MaxPoolParams& params, const Code* x, Code* y) {
  const auto larger = [](int32_t a, int32_t b) { return std::max(a, b); };
  for_each_output(shape, [&](int row, int column, int channel, ptrdiff_t index) {
    const int32_t largest = fold_window(shape, x, row, column, channel, params.clamp_min, larger);
    y[index] = static_cast<Code>(std::min(largest, params.clamp_max));
  });
}

template <typename Code>
void avg_pool(const PoolShape& shape, const AvgPoolParams& params, const Code* x, void* y) {
  const auto add = [&](int32_t sum, int32_t code) { return sum + code - params.x.zero_point; };
  for_each_output(shape, [&](int row, int column, int channel, ptrdiff_t index) {
    const int32_t sum = fold_window(shape, x, row, column, channel, 0, add);
    store_result(static_cast<float>(sum) * params.multiplier, params.y, y, index);
  });
}

}  // namespace

void max_pool_int8_reference(const PoolShape& shape, const MaxPoolParams& params, const void* x, void* y) {
  if (params.is_signed) {
    max_pool(shape, params, static_cast<const int8_t*>(x), static_cast<int8_t*>(y));
  } else {
    max_pool(shape, params, static_cast<const uint8_t*>(x), static_cast<uint8_t*>(y));
  }
}

void avg_pool_int8_reference(const PoolShape& shape, const AvgPoolParams& params, const void* x, void* y) {
  if (params.x.is_signed) {
    avg_pool(shape, params, static_cast<const int8_t*>(x), y);
  } else {
    avg_pool(shape, params, static_cast<const uint8_t*>(x), y);
  }
}

}  // namespace octet::kernels
