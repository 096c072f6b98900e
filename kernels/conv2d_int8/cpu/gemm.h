// A convolution as a matrix product: what a micro-kernel of one instruction set is given and what such a set offers.
// Plain data only: this header is included by files compiled for different processors, and must not bring inline
// functions of the standard library into them (the linker would keep any one copy).
#pragma once

#include <cstddef>
#include <cstdint>

namespace octet::kernels {

/// From accumulators to codes; see kernels/quantize.h. The clamp is applied before rounding, with bounds less the zero
/// point: clamp(rint(t) + z, lo, hi) == rint(clamp(t, lo - z, hi - z)) + z, for rint is monotone and keeps integers.
struct Epilogue {
  float low = 0, high = 255;  ///< clamp_min - out_zero_point, clamp_max - out_zero_point
  int32_t zero_point = 0, clamp_min = 0;
  bool float_output = false;
  bool has_residual = false;
  int32_t residual_zero_point = 0;
  float residual_multiplier = 0;
};

/// One register tile: rows (pixels) x channels. Weights are blocked [k / group][channels][group], see pack.h.
struct GemmTile {
  const uint8_t* a = nullptr;         ///< activations, row after row
  ptrdiff_t a_stride = 0;             ///< bytes between rows
  const int8_t* w = nullptr;          ///< this block's packed weights
  const int8_t* next_w = nullptr;     ///< fetched into L2 meanwhile: the next block's weights, or w again
  int k_steps = 0;                    ///< groups of k
  const int32_t* init = nullptr;      ///< per channel: -zx * sum(w)
  const float* multiplier = nullptr;  ///< per channel
  const float* bias = nullptr;        ///< per channel
  int channels = 0;                   ///< of the tile's width, how many exist
  const uint8_t* residual = nullptr;
  ptrdiff_t residual_stride = 0;
  void* y = nullptr;       ///< uint8, or float with float_output
  ptrdiff_t y_stride = 0;  ///< elements between rows
  const Epilogue* epilogue = nullptr;
};

using GemmKernel = void (*)(const GemmTile&);

/// Neighbouring output pixels whose windows lie inside the image, to be gathered: for each pixel, `rows` window rows of
/// `segments` pieces each, written one after the other.
struct GatherRun {
  const uint8_t* from = nullptr;
  ptrdiff_t pixel_step = 0, row_step = 0, segment_step = 0;
  int pixels = 0, rows = 0, segments = 0, segment_bytes = 0;
  uint8_t* to = nullptr;
  ptrdiff_t to_step = 0;  ///< from pixel to pixel
};

/// Up to 63 bytes behind each segment are read and written.
void avx512_gather(const GatherRun& run);

/// The micro-kernels of one instruction set.
struct GemmKernels {
  static constexpr int kMaxWidth = 4;
  static constexpr int kMaxRows = 14;
  const char* isa = nullptr;
  int k_group = 0;           ///< neighbouring k of one channel that one instruction sums: 4 (vpdpbusd) or 2 (vpmaddwd)
  int activation_bytes = 0;  ///< 1, or 2 when rows must be widened to int16 first
  int lanes = 0;             ///< channels of one vector register
  int width = 0;             ///< vectors across a tile for images
  int rows = 0;              ///< rows of such a tile
  int flat_width = 0;        ///< the same for one-pixel images (linear layers), where few rows exist
  int flat_rows = 0;
  /// Slot i of two neighbouring vectors computes their channel pair_order[i]; a single last vector is in order.
  uint8_t pair_order[32] = {};
  void (*gather)(const GatherRun&) = nullptr;   ///< null: plain code
  GemmKernel kernel[kMaxWidth][kMaxRows] = {};  ///< [width - 1][rows - 1]; null where not offered
};

const GemmKernels& avx512_gemm_kernels();
const GemmKernels& avx2_gemm_kernels();

}  // namespace octet::kernels
