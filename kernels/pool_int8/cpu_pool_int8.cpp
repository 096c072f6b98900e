#include "kernels/pool_int8/cpu_pool_int8.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu_targets.h"

namespace octet::kernels {
namespace {

// Channels summed at a time: 1 KiB of accumulators stays in the first-level cache.
constexpr int kSumBlock = 256;

// The taps of a window along one axis that fall into the image.
struct Taps {
  int begin, end;
};

[[gnu::always_inline]] inline Taps taps_inside(int first, int kernel, int size) {
  return {std::max(0, -first), std::min(kernel, size - first)};
}

// Calls body(pixel index) for every pixel of one window that lies in the image.
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

// Codes of Lanes neighbouring channels, in registers: a vector for 16 and 64, one code for 1.
template <int Lanes>
struct Codes {
  typedef uint8_t Type __attribute__((vector_size(Lanes)));
};
template <>
struct Codes<1> {
  using Type = uint8_t;
};

// The window's maximum for the whole groups of Lanes channels from `first` on; returns the first channel left over.
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
        if (params.y.float_output) {
          float* __restrict reals = static_cast<float*>(y) + out;
          for (int c = 0; c < count; ++c) reals[c] = static_cast<float>(sums[c] - zeros) * multiplier;
        } else {
          uint8_t* __restrict codes = static_cast<uint8_t*>(y) + out;
          for (int c = 0; c < count; ++c) codes[c] = round(static_cast<float>(sums[c] - zeros) * multiplier);
        }
      }
    }
  }
}

}  // namespace

OCTET_FOR_EACH_ISA(max_pool, max_pool_loop,
                   (const PoolShape& shape, const MaxPoolParams& params, Range rows, const uint8_t* x, uint8_t* y),
                   (shape, params, rows, x, y))

OCTET_FOR_EACH_ISA(avg_pool, avg_pool_loop,
                   (const PoolShape& shape, const AvgPoolParams& params, const AvgPoolPart& part, const uint8_t* x,
                    void* y),
                   (shape, params, part, x, y))

void cpu_max_pool_u8(CpuIsa isa, const PoolShape& shape, const MaxPoolParams& params, Range rows, const uint8_t* x,
                     uint8_t* y) {
  max_pool_for(isa)(shape, params, rows, x, y);
}

void cpu_avg_pool_u8(CpuIsa isa, const PoolShape& shape, const AvgPoolParams& params, const AvgPoolPart& part,
                     const uint8_t* x, void* y) {
  avg_pool_for(isa)(shape, params, part, x, y);
}

}  // namespace octet::kernels
