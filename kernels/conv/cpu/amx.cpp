// SPDX-License-Identifier: Apache-2.0
// The matrix product of AMX (Intel's servers from Sapphire Rapids on): a tile of up to 32 pixels x 32 channels, all of
// k, in four of the eight tile registers, 16 rows of 64 bytes each.
//
// TDPBUSD adds to 16 x 16 accumulators the products of 16 pixels x 64 unsigned codes and of 64 x 16 channels' signed
// weights, so codes are used as they are. Weights come as for vpdpbusd, [k / 4][channels][4], which is the layout that
// the instruction asks for; codes are rows as they lie in memory. k is divided into equal pieces of at most 64 bytes.
// Per piece 4 loads of tiles (8 cycles each) serve 4 products (16 cycles each), the blocking by 2 x 2 of Intel's
// Optimization Reference Manual (chapter "Intel Advanced Matrix Extensions": blocking of tiles, and the latencies: a
// product 52 cycles, LDTILECFG 204). A configuration is kept for as long as tiles have one shape.
//
// Accumulators begin with the channels' start values, the same for each row: a load with stride 0. They leave through
// memory, since no instruction moves a tile to vectors, and end as codes in AVX-512 registers.
#include <immintrin.h>

#include "kernels/conv/cpu/avx512_tiles.h"
#include "kernels/conv/cpu/micro_kernels.h"

namespace octet::kernels {
namespace {

constexpr int kTileRows = 16, kPieceBytes = 64;

/// The operand of LDTILECFG.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

using Finish = void (*)(const GemmTile& tile, const int32_t* sums);

/// What a thread has begun: the rows that its tile registers have, 0 for none, and the tile whose accumulators are
/// still numbers. They become codes while the registers compute the next tile's.
struct Begun {
  int rows = 0;
  int slot = 0;  ///< the half of sums that the next tile takes
  Finish finish = nullptr;
  GemmTile tile;
  alignas(64) int32_t sums[2][2 * kTileRows * 2 * kLanes] = {};
};
constinit thread_local Begun begun;

/// Sets the registers' shape: 2 * m + n hold accumulators, 4 + m codes and 6 + n weights. `rows` may be read. A product
/// takes as long with few rows as with 16, so the rows behind a tile's own are computed too, where they can be read:
/// tiles of a layer then have one shape, but for the last of a tensor.
void configure(Begun& b, int rows, int piece) {
  if (b.rows == rows) return;  // the piece is the same until release()
  b.rows = rows;
  TileConfig config;
  for (int m = 0; m < 2; ++m) {
    const int tile_rows = m == 0 ? (rows < kTileRows ? rows : kTileRows) : rows - kTileRows;
    for (int n = 0; n < 2 && tile_rows > 0; ++n) {
      config.rows[2 * m + n] = static_cast<uint8_t>(tile_rows);
      config.row_bytes[2 * m + n] = 4 * kLanes;
    }
    if (tile_rows > 0) {
      config.rows[4 + m] = static_cast<uint8_t>(tile_rows);
      config.row_bytes[4 + m] = static_cast<uint16_t>(piece);
    }
    config.rows[6 + m] = static_cast<uint8_t>(piece / 4);
    config.row_bytes[6 + m] = 4 * kLanes;
  }
  __asm__ volatile("ldtilecfg %0" : : "m"(config));
}

void settle() {
  if (begun.finish == nullptr) return;
  begun.finish(begun.tile, begun.sums[begun.slot ^ 1]);
  begun.finish = nullptr;
}

void release() {
  settle();
  _tile_release();
  begun.rows = 0;
}

/// Computes accumulators [32][16 * kWidth] of up to 16 * kHeight rows.
template <int kHeight, int kWidth>
OCTET_ALWAYS_INLINE void multiply(const GemmTile& tile, int pieces, int piece, int32_t* sums) {
  constexpr ptrdiff_t kStride = static_cast<ptrdiff_t>(kWidth) * 64;
  const ptrdiff_t below = kTileRows * tile.a_stride;
  __asm__ volatile("" : : : "memory");  // the intrinsics do not say that they read memory
  _tile_loadd(0, tile.init, 0);
  if constexpr (kWidth > 1) _tile_loadd(1, tile.init + kLanes, 0);
  if constexpr (kHeight > 1) _tile_loadd(2, tile.init, 0);
  if constexpr (kHeight > 1 && kWidth > 1) _tile_loadd(3, tile.init + kLanes, 0);
  const uint8_t* a = tile.a;
  const int8_t *w = tile.w, *next_w = tile.next_w;
  const ptrdiff_t weights = piece / 4 * kStride;
  for (int i = 0; i < pieces; ++i, a += piece, w += weights) {
    _tile_loadd(6, w, kStride);
    _tile_loadd(4, a, tile.a_stride);
    _tile_dpbusd(0, 4, 6);
    if constexpr (kWidth > 1) {
      _tile_loadd(7, w + 64, kStride);
      _tile_dpbusd(1, 4, 7);
    }
    if constexpr (kHeight > 1) {
      _tile_loadd(5, a + below, tile.a_stride);
      _tile_dpbusd(2, 5, 6);
      if constexpr (kWidth > 1) _tile_dpbusd(3, 5, 7);
    }
    if (next_w != tile.w) {
      for (ptrdiff_t line = 0; line < weights; line += 64) _mm_prefetch(next_w + line, _MM_HINT_T1);
      next_w += weights;
    }
  }
  _tile_stored(0, sums, kStride);
  if constexpr (kWidth > 1) _tile_stored(1, sums + kLanes, kStride);
  if constexpr (kHeight > 1) _tile_stored(2, sums + kTileRows * kLanes * kWidth, kStride);
  if constexpr (kHeight > 1 && kWidth > 1) _tile_stored(3, sums + kTileRows * kLanes * kWidth + kLanes, kStride);
}

/// Turns rows [first, first + kRows) of the accumulators into codes.
template <bool kResidual, bool kLogits, int kRows, int kWidth>
OCTET_ALWAYS_INLINE void finish_rows(GemmTile tile, const EpilogueConstants& constants, int first,
                                     const int32_t* sums) {
  const int element = kLogits ? sizeof(float) : 1;
  tile.y = static_cast<uint8_t*>(tile.y) + first * tile.y_stride * element;
  if (kResidual) tile.residual += first * tile.residual_stride;
  __m512i acc[kRows][kWidth];
  for (int m = 0; m < kRows; ++m)
    for (int n = 0; n < kWidth; ++n) acc[m][n] = _mm512_load_si512(sums + ((first + m) * kWidth + n) * kLanes);
  finish<kResidual, kLogits>(tile, constants, acc);
}

template <bool kResidual, bool kLogits, int kWidth>
void finish_all(const GemmTile& tile, const int32_t* sums) {
  const EpilogueConstants constants(*tile.epilogue);
  int row = 0;
  for (; row + 2 <= tile.rows; row += 2) finish_rows<kResidual, kLogits, 2, kWidth>(tile, constants, row, sums);
  if (row < tile.rows) finish_rows<kResidual, kLogits, 1, kWidth>(tile, constants, row, sums);
}

template <int kWidth>
Finish finish_of(const Epilogue& e) {
  if (e.float_output) return e.has_residual ? finish_all<true, true, kWidth> : finish_all<false, true, kWidth>;
  return e.has_residual ? finish_all<true, false, kWidth> : finish_all<false, false, kWidth>;
}

template <int kHeight, int kWidth>
void gemm(const GemmTile& tile) {
  Begun& b = begun;
  const int pieces = (4 * tile.k_steps + kPieceBytes - 1) / kPieceBytes, piece = 4 * tile.k_steps / pieces;
  configure(b, tile.readable_rows < 2 * kTileRows ? tile.readable_rows : 2 * kTileRows, piece);
  multiply<kHeight, kWidth>(tile, pieces, piece, b.sums[b.slot]);
  b.slot ^= 1;
  if (b.finish != nullptr) b.finish(b.tile, b.sums[b.slot]);
  b.tile = tile;
  b.finish = finish_of<kWidth>(*tile.epilogue);
}

GemmKernels make_kernels() {
  GemmKernels k;
  k.isa = "amx";
  k.k_group = 4;
  k.k_piece = kPieceBytes;
  k.activation_bytes = 1;
  k.lanes = kLanes;
  k.width = k.flat_width = 2;
  k.rows = k.flat_rows = 2 * kTileRows;
  k.equal_panels = false;
  k.min_task_work = 1 << 21;
  k.tasks = 4;  // more would divide channels where rows are few, and tasks that share rows read and gather them again
  k.gather = gather;
  k.settle = settle;
  k.release = release;
  set_pair_order(k);
  for (int rows = 1; rows <= 2 * kTileRows; ++rows) {
    k.kernel[0][rows - 1] = rows <= kTileRows ? gemm<1, 1> : gemm<2, 1>;
    k.kernel[1][rows - 1] = rows <= kTileRows ? gemm<1, 2> : gemm<2, 2>;
  }
  return k;
}

}  // namespace

const GemmKernels& amx_gemm_kernels() {
  static const GemmKernels kernels = make_kernels();
  return kernels;
}

}  // namespace octet::kernels
