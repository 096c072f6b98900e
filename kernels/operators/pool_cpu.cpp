// SPDX-License-Identifier: Apache-2.0
#include "kernels/operators/pool.h"

#include <algorithm>
#include <cstring>

#include "kernels/core/cpu.h"

namespace octet::kernels {
namespace {

/// Folds the codes of one window from `start` on, without padding: result = fold(result, xq).
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

/// Calls body(output row, output column, channel, output index) for every output.
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

namespace {

/// Channels summed at a time: 1 KiB of accumulators stays in the first-level cache.
constexpr int kSumBlock = 256;

/// The taps of a window along one axis that lie inside the image.
struct Taps {
  int begin, end;
};

[[gnu::always_inline]] inline Taps taps_inside(int first, int kernel, int size) {
  return {std::max(0, -first), std::min(kernel, size - first)};
}

/// Calls body(pixel index) for every pixel of one window that lies inside the image.
template <typename Body>
[[gnu::always_inline]] inline void for_each_tap(const PoolShape& s, int out_row, int out_column, const Body& body) {
  const int row0 = out_row * s.stride_h - s.pad_h, column0 = out_column * s.stride_w - s.pad_w;
  const Taps rows = taps_inside(row0, s.kernel_h, s.in_h);
  const Taps columns = taps_inside(column0, s.kernel_w, s.in_w);
  for (int r = rows.begin; r < rows.end; ++r) {
    const ptrdiff_t row = static_cast<ptrdiff_t>(row0 + r) * s.in_w;
    for (int q = columns.begin; q < columns.end; ++q) body(row + column0 + q);
  }
}

/// The type of the codes of Lanes neighbouring channels in registers: a vector for 16 and 64, a byte for 1.
template <int Lanes>
struct Codes {
  typedef uint8_t Type __attribute__((vector_size(Lanes)));
};
template <>
struct Codes<1> {
  using Type = uint8_t;
};

/// Max-pools as many complete groups of Lanes channels as there are from `first` on; returns the first channel left.
template <int Lanes>
[[gnu::always_inline]] inline int max_pool_channels(const PoolShape& s, const MaxPoolParams& params, int row,
                                                    int column, int first, const uint8_t* x, uint8_t* y) {
  using Vector = typename Codes<Lanes>::Type;
  for (; first + Lanes <= s.channels; first += Lanes) {
    Vector largest = Vector{} + static_cast<uint8_t>(params.clamp_min);
    const Vector highest = Vector{} + static_cast<uint8_t>(params.clamp_max);
    for_each_tap(s, row, column, [&](ptrdiff_t pixel) {
      Vector codes;
      std::memcpy(&codes, x + pixel * s.in_stride + first, Lanes);
      largest = codes > largest ? codes : largest;
    });
    largest = largest < highest ? largest : highest;
    std::memcpy(y + (static_cast<ptrdiff_t>(row) * s.out_w + column) * s.out_stride + first, &largest, Lanes);
  }
  return first;
}

[[gnu::always_inline]] inline void max_pool_loop(const PoolShape& s, const MaxPoolParams& params, Range rows,
                                                 const uint8_t* x, uint8_t* y) {
  for (int row = rows.begin; row < rows.end; ++row) {
    for (int column = 0; column < s.out_w; ++column) {
      int channel = max_pool_channels<64>(s, params, row, column, 0, x, y);
      channel = max_pool_channels<16>(s, params, row, column, channel, x, y);
      max_pool_channels<1>(s, params, row, column, channel, x, y);
    }
  }
}

[[gnu::always_inline]] inline void avg_pool_loop(const PoolShape& s, const AvgPoolParams& params,
                                                 const AvgPoolPart& part, const uint8_t* x, void* y) {
  const FastRounding round(params.y);
  const float multiplier = params.multiplier;
  for (int row = part.rows.begin; row < part.rows.end; ++row) {
    for (int column = 0; column < s.out_w; ++column) {
      const ptrdiff_t out_pixel = static_cast<ptrdiff_t>(row) * s.out_w + column;
      for (int first = part.channels.begin; first < part.channels.end; first += kSumBlock) {
        const int count = std::min(kSumBlock, part.channels.end - first);
        int32_t sums[kSumBlock] = {};
        int32_t taps = 0;
        for_each_tap(s, row, column, [&](ptrdiff_t pixel) {
          const uint8_t* __restrict in = x + pixel * s.in_stride + first;
          for (int c = 0; c < count; ++c) sums[c] += in[c];
          ++taps;
        });
        const int32_t zeros = taps * params.x.zero_point;
        const ptrdiff_t out = out_pixel * s.out_stride + first;
        const auto value = [&](ptrdiff_t c) { return static_cast<float>(sums[c] - zeros) * multiplier; };
        store_results(params.y, round, count, value, y, out);
      }
    }
  }
}

}  // namespace

void cpu_max_pool_u8(CpuIsa isa, const PoolShape& shape, const MaxPoolParams& params, Range rows, const uint8_t* x,
                     uint8_t* y) {
  run_on<max_pool_loop>(isa, shape, params, rows, x, y);
}

void cpu_avg_pool_u8(CpuIsa isa, const PoolShape& shape, const AvgPoolParams& params, const AvgPoolPart& part,
                     const uint8_t* x, void* y) {
  run_on<avg_pool_loop>(isa, shape, params, part, x, y);
}

}  // namespace octet::kernels
