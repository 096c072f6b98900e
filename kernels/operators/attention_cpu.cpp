// SPDX-License-Identifier: Apache-2.0
#include "kernels/operators/attention.h"

#include <algorithm>
#include <utility>

#include "kernels/core/cpu.h"
#include "kernels/operators/products_avx512.h"

namespace octet::kernels {

void matmul_int8_reference(const MatmulShape& s, const MatmulParams& params, const void* a, const void* b, void* y) {
  for (int row = 0; row < s.rows; ++row) {
    for (int head = 0; head < s.heads; ++head) {
      const ptrdiff_t from = static_cast<ptrdiff_t>(row) * s.a_stride + head * s.terms;
      const ptrdiff_t to = static_cast<ptrdiff_t>(row) * s.y_stride + head * s.columns;
      for (int column = 0; column < s.columns; ++column) {
        int32_t sum = 0;
        for (int term = 0; term < s.terms; ++term) {
          sum +=
              centred_code(a, from + term, params.a) * centred_code(b, matmul_b_index(s, head, term, column), params.b);
        }
        store_result(static_cast<float>(sum) * params.multiplier, params.y, y, to + column);
      }
    }
  }
}

namespace {

template <typename Code>
void softmax(const SoftmaxShape& s, const SoftmaxParams& params, const Code* x, void* y) {
  for (int pixel = 0; pixel < s.pixels; ++pixel) {
    for (int group = 0; group < s.groups; ++group) {
      const Code* from = x + static_cast<ptrdiff_t>(pixel) * s.x_stride + group * s.channels;
      const ptrdiff_t to = static_cast<ptrdiff_t>(pixel) * s.y_stride + group * s.channels;
      const Code largest = *std::max_element(from, from + s.channels);
      int32_t sum = 0;
      for (int c = 0; c < s.channels; ++c) sum += params.exponential[largest - from[c]];
      for (int c = 0; c < s.channels; ++c) {
        const float share = static_cast<float>(params.exponential[largest - from[c]]) / static_cast<float>(sum);
        store_result(share * params.multiplier, params.y, y, to + c);
      }
    }
  }
}

}  // namespace

void softmax_int8_reference(const SoftmaxShape& shape, const SoftmaxParams& params, const void* x, void* y) {
  if (params.x_is_signed) {
    softmax(shape, params, static_cast<const int8_t*>(x), y);
  } else {
    softmax(shape, params, static_cast<const uint8_t*>(x), y);
  }
}

// matmul on the CPU. Products of codes are integers below 2^16, so float32 adds up 256 of them exactly, in any order.
// Longer sums continue in int32. avx512_vnni multiplies integers instead: products_avx512.cpp.

namespace {

constexpr int kColumns = kMatmulColumns;  ///< columns of a unit
constexpr int kRows = 4;                  ///< rows computed together: each load of b serves this many sums
constexpr int kExactTerms = 256;
static_assert(kExactTerms * 255 * 255 < 1 << 24);

typedef float Reals __attribute__((vector_size(kColumns * sizeof(float))));
typedef int32_t Integers __attribute__((vector_size(kColumns * sizeof(int32_t))));

int column_blocks(const MatmulShape& s) { return (s.columns + kColumns - 1) / kColumns; }

size_t avx512_panel_bytes(const MatmulShape& s) { return static_cast<size_t>((s.terms + 3) / 4 * 4) * kMatmulColumns; }

/// The workspace: a unit's columns of b and some rows of a, both minus their zero points.
struct Panels {
  Reals* b;  ///< [terms]
  float* a;  ///< [kRows][terms]
};

[[gnu::always_inline]] inline void pack_columns(const MatmulShape& s, int32_t zero_point, int head, int first,
                                                const uint8_t* b, Reals* panel) {
  const int count = std::min(kColumns, s.columns - first);
  const ptrdiff_t step = matmul_b_index(s, head, 0, first + 1) - matmul_b_index(s, head, 0, first);
  for (int term = 0; term < s.terms; ++term) {
    const uint8_t* from = b + matmul_b_index(s, head, term, first);
    Reals column = {};
    for (int c = 0; c < count; ++c) column[c] = static_cast<float>(from[c * step] - zero_point);
    panel[term] = column;
  }
}

[[gnu::always_inline]] inline void pack_rows(const MatmulShape& s, int32_t zero_point, int head, int first,
                                             const uint8_t* a, float* rows) {
  for (int r = 0; r < kRows; ++r) {
    const int row = std::min(first + r, s.rows - 1);  // past the last row: its sums are not stored
    const uint8_t* from = a + static_cast<ptrdiff_t>(row) * s.a_stride + head * s.terms;
    for (int term = 0; term < s.terms; ++term) rows[r * s.terms + term] = static_cast<float>(from[term] - zero_point);
  }
}

[[gnu::always_inline]] inline void add_products(const Panels& from, int terms, Integers (&sums)[kRows]) {
  for (int r = 0; r < kRows; ++r) sums[r] = Integers{};
  for (int first = 0; first < terms; first += kExactTerms) {
    const int end = std::min(first + kExactTerms, terms);
    Reals part[kRows] = {};
    for (int term = first; term < end; ++term) {
      const Reals b = from.b[term];
      for (int r = 0; r < kRows; ++r) part[r] += from.a[r * terms + term] * b;
    }
    for (int r = 0; r < kRows; ++r) sums[r] += __builtin_convertvector(part[r], Integers);
  }
}

[[gnu::always_inline]] inline void store_row(const MatmulParams& params, const FastRounding& round,
                                             const Integers& sums, int count, ptrdiff_t at, void* y) {
  for (int c = 0; c < count; ++c) {
    const float t = static_cast<float>(sums[c]) * params.multiplier;
    if (params.y.float_output) {
      static_cast<float*>(y)[at + c] = t;
    } else {
      static_cast<uint8_t*>(y)[at + c] = round(t);
    }
  }
}

[[gnu::always_inline]] inline void matmul_loop(const MatmulShape& s, const MatmulParams& params, Range units,
                                               const uint8_t* a, const uint8_t* b, void* y, void* workspace) {
  const FastRounding round(params.y);
  Reals* columns = static_cast<Reals*>(workspace);
  const Panels panels{columns, reinterpret_cast<float*>(columns + s.terms)};
  for (int unit = units.begin; unit < units.end; ++unit) {
    const int head = unit / column_blocks(s), first = unit % column_blocks(s) * kColumns;
    const int count = std::min(kColumns, s.columns - first);
    pack_columns(s, params.b.zero_point, head, first, b, panels.b);
    for (int row = 0; row < s.rows; row += kRows) {
      pack_rows(s, params.a.zero_point, head, row, a, panels.a);
      Integers sums[kRows];
      add_products(panels, s.terms, sums);
      for (int r = 0; r < std::min(kRows, s.rows - row); ++r)
        store_row(params, round, sums[r], count,
                  static_cast<ptrdiff_t>(row + r) * s.y_stride + head * s.columns + first, y);
    }
  }
}

}  // namespace

int cpu_matmul_units(const MatmulShape& shape) { return shape.heads * column_blocks(shape); }

size_t cpu_matmul_workspace(const MatmulShape& shape) {
  return std::max(static_cast<size_t>(shape.terms) * (sizeof(Reals) + kRows * sizeof(float)),
                  avx512_panel_bytes(shape) + static_cast<size_t>(shape.rows) * sizeof(int32_t));
}

#if defined(__x86_64__)
namespace {

void matmul_avx512_vnni(const MatmulShape& s, const MatmulParams& params, Range units, const uint8_t* a,
                        const uint8_t* b, void* y, void* workspace) {
  MatmulRun run{.panel = static_cast<int8_t*>(workspace), .a_stride = s.a_stride, .b_stride = s.b_stride};
  auto* row_sums = reinterpret_cast<int32_t*>(run.panel + avx512_panel_bytes(s));
  run.row_sums = row_sums;
  run.y_stride = s.y_stride, run.rows = s.rows, run.terms = s.terms, run.transposed = s.transposed;
  run.a_zero = params.a.zero_point, run.b_zero = params.b.zero_point, run.y_zero = params.y.zero_point;
  run.multiplier = params.multiplier, run.float_output = params.y.float_output;
  const FastRounding bounds(params.y);
  run.low = bounds.low, run.high = bounds.high;
  const ptrdiff_t y_element = params.y.float_output ? sizeof(float) : 1;
  for (int unit = units.begin, known = -1; unit < units.end; ++unit) {
    const int head = unit / column_blocks(s), first = unit % column_blocks(s) * kColumns;
    run.a = a + static_cast<ptrdiff_t>(head) * s.terms;
    run.b = b + matmul_b_index(s, head, 0, first);
    run.y = static_cast<uint8_t*>(y) + (static_cast<ptrdiff_t>(head) * s.columns + first) * y_element;
    run.columns = std::min(kColumns, s.columns - first);
    if (std::exchange(known, head) != head) avx512_row_sums(run.a, s.a_stride, s.rows, s.terms, row_sums);
    avx512_matmul(run);
  }
}

}  // namespace
#endif

void cpu_matmul_u8(CpuIsa isa, const MatmulShape& shape, const MatmulParams& params, Range units, const uint8_t* a,
                   const uint8_t* b, void* y, void* workspace) {
#if defined(__x86_64__)
  if (vector_isa(isa) == CpuIsa::avx512_vnni) return matmul_avx512_vnni(shape, params, units, a, b, y, workspace);
#endif
  run_on<matmul_loop>(isa, shape, params, units, a, b, y, workspace);
}

namespace {

/// Computes one group of channels at x into element `at` of y.
[[gnu::always_inline]] inline void softmax_group(const SoftmaxParams& params, const FastRounding& round, int channels,
                                                 const uint8_t* __restrict x, ptrdiff_t at, void* y) {
  uint8_t largest = 0;
  for (int c = 0; c < channels; ++c) largest = x[c] > largest ? x[c] : largest;
  const int32_t* __restrict exponential = params.exponential;
  int32_t sum = 0;
  for (int c = 0; c < channels; ++c) sum += exponential[largest - x[c]];
  const float divisor = static_cast<float>(sum), multiplier = params.multiplier;
  const auto value = [&](ptrdiff_t c) {
    return static_cast<float>(exponential[largest - x[c]]) / divisor * multiplier;
  };
  store_results(params.y, round, channels, value, y, at);
}

[[gnu::always_inline]] inline void softmax_loop(const SoftmaxShape& s, const SoftmaxParams& params, Range pixels,
                                                const uint8_t* x, void* y) {
  const FastRounding round(params.y);
  for (int pixel = pixels.begin; pixel < pixels.end; ++pixel) {
    for (int group = 0; group < s.groups; ++group) {
      const int first = group * s.channels;
      softmax_group(params, round, s.channels, x + static_cast<ptrdiff_t>(pixel) * s.x_stride + first,
                    static_cast<ptrdiff_t>(pixel) * s.y_stride + first, y);
    }
  }
}

}  // namespace

void cpu_softmax_u8(CpuIsa isa, const SoftmaxShape& shape, const SoftmaxParams& params, Range pixels, const uint8_t* x,
                    void* y) {
  run_on<softmax_loop>(isa, shape, params, pixels, x, y);
}

}  // namespace octet::kernels
