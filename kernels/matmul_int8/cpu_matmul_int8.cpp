// Products of codes are whole and below 2^16: 256 of them add up exactly in float32, in any order, which every
// instruction set multiplies as fast as it can. Longer sums go on in int32. avx512_vnni has whole products of its own.
#include "kernels/matmul_int8/cpu_matmul_int8.h"

#include <algorithm>
#include <utility>

#include "kernels/cpu_targets.h"
#include "kernels/matmul_int8/avx512_matmul.h"

namespace octet::kernels {
namespace {

constexpr int kColumns = kMatmulColumns;  ///< of a unit
constexpr int kRows = 4;                  ///< at once, so that a load of b serves so many sums
constexpr int kExactTerms = 256;
static_assert(kExactTerms * 255 * 255 < 1 << 24);

typedef float Reals __attribute__((vector_size(kColumns * sizeof(float))));
typedef int32_t Integers __attribute__((vector_size(kColumns * sizeof(int32_t))));

int column_blocks(const MatmulShape& s) { return (s.columns + kColumns - 1) / kColumns; }

size_t avx512_panel_bytes(const MatmulShape& s) { return static_cast<size_t>((s.terms + 3) / 4 * 4) * kMatmulColumns; }

/// Scratch: the unit's columns of b, and some rows of a, without their zero points.
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
    const int row = std::min(first + r, s.rows - 1);  // behind the last row: sums that nobody stores
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

OCTET_FOR_EACH_ISA(matmul, matmul_loop,
                   (const MatmulShape& shape, const MatmulParams& params, Range units, const uint8_t* a,
                    const uint8_t* b, void* y, void* workspace),
                   (shape, params, units, a, b, y, workspace))

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
  if (isa == CpuIsa::avx512_vnni) return matmul_avx512_vnni(shape, params, units, a, b, y, workspace);
#endif
  matmul_for(isa)(shape, params, units, a, b, y, workspace);
}

}  // namespace octet::kernels
