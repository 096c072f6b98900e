// SPDX-License-Identifier: Apache-2.0
// The matrix product of AMX: what it is given. Plain data only, as in micro_kernels.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/conv/cpu/micro_kernels.h"

namespace octet::kernels {

inline constexpr int kTilePixels = 32;    ///< rows of a panel: two tile registers
inline constexpr int kTileChannels = 32;  ///< channels of a block: two tile registers of sums
inline constexpr int kTileBytes = 64;     ///< bytes of k in one tile register
inline constexpr int kSumRow = 64;        ///< bytes of a row of sums

/// Two pixels, neighbours in y and in the residual, whose sums are neighbours too.
struct TilePair {
  uint16_t sums = 0;   ///< bytes from the panel's first row of sums to the first pixel's, 64 a row
  uint16_t pixel = 0;  ///< from the panel's first pixel to the first of the two
};

/// Output pixels that are computed together. Rows of the product that are no pixel's are computed in vain.
struct TilePanel {
  const uint8_t* a = nullptr;       ///< codes of the first of TileProduct::rows rows
  ptrdiff_t first_pixel = 0;        ///< which pixel of y and of the residual is the panel's first
  const TilePair* pairs = nullptr;  ///< [pair_count]; they may overlap
  int pair_count = 0;
  const TilePair* singles = nullptr;  ///< [single_count]: pixels outside all pairs
  int single_count = 0;
};

/// A product of panels of codes and blocks of weights. Row i of a panel takes the codes at a + i * a_stride +
/// piece_at[p], piece_bytes of them for each piece p.
struct TileProduct {
  const TilePanel* panels = nullptr;
  int panel_count = 0;
  int rows = 0;  ///< of each panel, at most kTilePixels
  ptrdiff_t a_stride = 0;
  bool in_place = false;  ///< whether panels follow each other in a tensor, and may be in no cache of the core yet
  const int32_t* piece_at = nullptr;
  int pieces = 0, piece_bytes = 0;  ///< at most kTileBytes, a multiple of 4
  const int8_t* w = nullptr;        ///< [blocks][2][pieces][piece_bytes / 4][kTileChannels / 2][4]
  const int32_t* init = nullptr;    ///< this and the next two: [blocks][kTileChannels], as in GemmTile, by tile_slot()
  const float* multiplier = nullptr;
  const float* bias = nullptr;
  int blocks = 0;
  int channels = 0;  ///< how many channels of the blocks exist
  int together = 1;  ///< panels that are computed for one block after the other, before the next panels
  const uint8_t* residual = nullptr;
  ptrdiff_t residual_stride = 0;
  uint8_t* y = nullptr;
  ptrdiff_t y_stride = 0;
  const uint8_t* lookup = nullptr;  ///< if given, y holds table[code]; [256]
  const Epilogue* epilogue = nullptr;
};

/// Returns where a block has its channel `channel`: packs of vectors work within 128 bits (avx512_epilogue.h).
constexpr int tile_slot(int channel) { return channel % 8 / 4 * 16 + channel / 8 * 4 + channel % 4; }

/// Computes the codes of a product.
void amx_product(const TileProduct& product);

}  // namespace octet::kernels
