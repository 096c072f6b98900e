// SPDX-License-Identifier: Apache-2.0
// The micro-kernels of the CPU's convolutions: what a kernel of one instruction set is given, and what a set offers.
// Plain data only: files compiled for different instruction sets include this header, so it must not bring inline
// functions of the standard library into them (the linker would keep any one copy).
#pragma once

#include <cstddef>
#include <cstdint>

namespace octet::kernels {

/// How accumulators become codes (kernels/core/quantize.h). The clamp is applied before rounding, with bounds less the
/// zero point: clamp(rint(t) + z, lo, hi) == rint(clamp(t, lo - z, hi - z)) + z, because rint is monotone and keeps
/// integers.
struct Epilogue {
  float low = 0, high = 255;  ///< clamp_min - out_zero_point, clamp_max - out_zero_point
  int32_t zero_point = 0, clamp_min = 0;
  bool float_output = false;
  bool has_residual = false;
  int32_t residual_zero_point = 0;
  float residual_multiplier = 0;
  bool fits_int32 = false;  ///< no value before rounding leaves int32, whatever the codes are
};

/// One register tile of the matrix product: rows (pixels) x channels. Weights are laid out as in PackedGemm.
struct GemmTile {
  const uint8_t* a = nullptr;         ///< activations, row after row
  ptrdiff_t a_stride = 0;             ///< bytes between rows
  const int8_t* w = nullptr;          ///< this block's packed weights
  const int8_t* next_w = nullptr;     ///< what to prefetch into L2: the next block's weights; or null
  int k_steps = 0;                    ///< number of groups of k_group neighbouring k
  const int32_t* init = nullptr;      ///< per channel: (code_offset - zx) * sum(w)
  const float* multiplier = nullptr;  ///< per channel
  const float* bias = nullptr;        ///< per channel
  int channels = 0;                   ///< how many channels of the tile's width exist
  const uint8_t* residual = nullptr;
  ptrdiff_t residual_stride = 0;
  void* y = nullptr;       ///< uint8, or float with float_output
  ptrdiff_t y_stride = 0;  ///< elements between rows
  const Epilogue* epilogue = nullptr;
};

using GemmKernel = void (*)(const GemmTile&);

/// A gather of neighbouring output pixels whose windows lie inside the image. For each pixel, `rows` window rows of
/// `segments` pieces each are written one after the other.
struct GatherRun {
  const uint8_t* from = nullptr;
  ptrdiff_t pixel_step = 0, row_step = 0, segment_step = 0;
  int pixels = 0, rows = 0, segments = 0, segment_bytes = 0;
  uint8_t* to = nullptr;
  ptrdiff_t to_step = 0;  ///< bytes from one pixel's row to the next
};

/// The matrix product's micro-kernels of one instruction set.
struct GemmKernels {
  static constexpr int kMaxWidth = 4;
  static constexpr int kMaxRows = 16;
  const char* isa = nullptr;
  int k_group = 0;           ///< how many neighbouring k one instruction sums: 4 (vpdpbusd, SDOT), 2 (vpmaddwd), 8
  int activation_bytes = 0;  ///< 1, or 2 if rows must be widened to int16 first
  int code_offset = 0;  ///< what is subtracted from codes before they are multiplied: 0, or 128 to make them signed
  int lanes = 0;        ///< channels of one vector register
  int width = 0;        ///< vectors across a tile
  int rows = 0;         ///< rows of a tile
  int flat_width = 0;   ///< width for one-pixel images (linear layers), which have few rows
  int flat_rows = 0;    ///< rows for one-pixel images
  /// Slot i of two neighbouring vectors computes their channel pair_order[i]. A single last vector is in order.
  uint8_t pair_order[32] = {};
  /// May read and write up to 63 bytes behind each segment. Null if the plain gather is used.
  void (*gather)(const GatherRun&) = nullptr;
  GemmKernel kernel[kMaxWidth][kMaxRows] = {};  ///< [width - 1][rows - 1]; null if not offered
};

const GemmKernels& avx512_gemm_kernels();
const GemmKernels& avx_vnni_gemm_kernels();
const GemmKernels& avx2_gemm_kernels();
const GemmKernels& neon_gemm_kernels();
const GemmKernels& dotprod_gemm_kernels();
const GemmKernels& i8mm_gemm_kernels();

/// A run of neighbouring output pixels of one row, for one block of channels, in a depthwise convolution. Tap t of
/// pixel i reads taps[i * tap_step + t] + channel + i * pixel_step.
struct DepthwiseRun {
  const uint8_t* const* taps = nullptr;  ///< [pixels or 1][tap_groups * tap_group], at channel 0
  ptrdiff_t tap_step = 0;                ///< 0 if all pixels share their pointers, apart from pixel_step
  int tap_groups = 0;
  int channel = 0;  ///< first channel of the block
  ptrdiff_t pixel_step = 0;
  int pixels = 0;
  const int8_t* w = nullptr;  ///< weights of the block; like its constants, in the order of DepthwiseKernels::order
  const int32_t* init = nullptr;
  const float* multiplier = nullptr;
  const float* bias = nullptr;
  int channels = 0;  ///< how many of the block's channels exist
  const uint8_t* residual = nullptr;
  ptrdiff_t residual_stride = 0;
  uint8_t* y = nullptr;
  ptrdiff_t y_stride = 0;
  const Epilogue* epilogue = nullptr;
};

/// The depthwise kernels of one instruction set. A kernel computes channel order[i] of a block in slot i. Weights are
/// [tap group][slot][tap_group].
struct DepthwiseKernels {
  static constexpr int kMaxSlots = 64;
  const char* isa = nullptr;
  int slots = 0;            ///< slots of a block
  int channels = 0;         ///< channels of a block
  int narrow_channels = 0;  ///< channels of a block that run_narrow() computes for two pixels at once; 0: none
  int tap_group = 0;        ///< taps are multiplied in groups of this many; missing taps have weight 0
  int code_offset = 0;      ///< as in GemmKernels
  uint8_t order[kMaxSlots] = {};
  uint8_t narrow_order[kMaxSlots] = {};
  void (*run)(const DepthwiseRun&) = nullptr;
  void (*run_narrow)(const DepthwiseRun&) = nullptr;
};

const DepthwiseKernels& avx512_depthwise_kernels();
const DepthwiseKernels& avx_vnni_depthwise_kernels();
const DepthwiseKernels& avx2_depthwise_kernels();
const DepthwiseKernels& neon_depthwise_kernels();

/// Writes table[x] for `count` bytes; table: [256].
void neon_lookup(const uint8_t* table, const uint8_t* x, long count, uint8_t* y);

}  // namespace octet::kernels
