// Depthwise convolution: what a kernel of one instruction set is given. Plain data only, like gemm.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/conv2d_int8/cpu/gemm.h"

namespace octet::kernels {

/// Taps are multiplied in groups of this many, missing ones with weight 0.
inline constexpr int kTapGroup = 4;

/// A run of neighbouring output pixels of one row, for one block of channels. Tap t of pixel i reads
/// taps[i * tap_step + t] + channel + i * pixel_step.
struct DepthwiseRun {
  const uint8_t* const* taps = nullptr;  ///< [pixels or 1][tap_groups * kTapGroup], at channel 0
  ptrdiff_t tap_step = 0;                ///< 0 when all pixels share their pointers but for pixel_step
  int tap_groups = 0;
  int channel = 0;  ///< the block's first
  ptrdiff_t pixel_step = 0;
  int pixels = 0;
  const int8_t* w = nullptr;  ///< this block's weights, constants: see DepthwiseKernels::order
  const int32_t* init = nullptr;
  const float* multiplier = nullptr;
  const float* bias = nullptr;
  int channels = 0;  ///< of the block's, how many exist
  const uint8_t* residual = nullptr;
  ptrdiff_t residual_stride = 0;
  uint8_t* y = nullptr;
  ptrdiff_t y_stride = 0;
  const Epilogue* epilogue = nullptr;
};

/// The kernels of one instruction set. A block has block_slots slots; the kernel computes channel order[i] of the block
/// in slot i. Weights are [tap group][slot][kTapGroup].
struct DepthwiseKernels {
  static constexpr int kMaxSlots = 64;
  const char* isa = nullptr;
  int slots = 0;            ///< of a block
  int channels = 0;         ///< of a block
  int narrow_channels = 0;  ///< of a block that computes two pixels at once, for few remaining channels; 0: none
  uint8_t order[kMaxSlots] = {};
  uint8_t narrow_order[kMaxSlots] = {};
  void (*run)(const DepthwiseRun&) = nullptr;
  void (*run_narrow)(const DepthwiseRun&) = nullptr;
};

const DepthwiseKernels& avx512_depthwise_kernels();
const DepthwiseKernels& avx2_depthwise_kernels();

}  // namespace octet::kernels
