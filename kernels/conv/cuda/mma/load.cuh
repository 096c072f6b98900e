// SPDX-License-Identifier: Apache-2.0
// The input of the mma convolution kernels: the arguments, computed on the host, and the copies from tensors to shared
// memory. Include it in .cu files only.
#pragma once

#include <cstdint>

#include "kernels/conv/cuda/epilogue.cuh"
#include "kernels/conv/cuda/mma/mma.h"
#include "kernels/conv/cuda/ptx.cuh"
#include "kernels/core/cuda.h"
#include "kernels/core/divide.h"

namespace octet::kernels {

/// A sum in parts, each computed by its own block, that are added up in device memory.
struct SplitSum {
  int parts = 1;
  int32_t* counters = nullptr;  ///< [tiles]: number of parts that have arrived
  int32_t* partial = nullptr;   ///< [tiles, parts, sums of a tile]
};

/// The convolution as a matrix product: pixels x channels, summed over chunks of 16 bytes in the order (kernel row,
/// kernel column, 16 input channels).
struct MmaArgs {
  ConvOutput out;                   ///< constants of n_tiles * block_n channels
  const uint8_t* weight = nullptr;  ///< [n_tiles, k_tiles, block_n, block_k], swizzled (mma_pack)
  const uint8_t* x = nullptr;       ///< [images, H, W, in_stride]

  Conv2dShape g;
  int in_chunks = 0;                                   ///< chunks of 16 input channels
  int image_bytes = 0, row_step = 0, column_step = 0;  ///< bytes of an image; bytes to the next kernel row, column
  FastDivide by_image, by_row;                         ///< pixel -> image; pixel of an image -> output row
  FastDivide by_kernel_w, by_in_chunks;                ///< chunk of the sum -> kernel tap; tap -> kernel row
  FastDivide by_dilation_h, by_dilation_w;
  bool dense = false;         ///< pixel i of y reads only pixel i of x: 1x1, stride 1, no padding
  bool padded = false;        ///< whether some windows extend beyond the image
  bool beside = false;        ///< CudaConv2dData::beside
  uint32_t padding_word = 0;  ///< the value of x outside the image: four zero points

  int n_tiles = 0, k_tiles = 0;
  FastDivide by_n_tiles;
  int k_per_part = 0, k_extra = 0;  ///< steps of a part; the first k_extra parts have one more
  SplitSum split;
  bool in_cluster = false;  ///< the blocks of a split sum are a cluster, which uses no device memory
};

/// Launches one of kMmaTiles on `blocks` tiles of the output.
using MmaLaunch = void (*)(const MmaArgs& args, unsigned blocks, bool x_signed, CudaStream stream);

/// Returns the launch of kMmaTiles[tile], which must be compiled in part kPart.
template <int kPart>
MmaLaunch mma_launch(int tile);

/// Copies a block's rows of the input matrix (im2col on the fly), one step of the sum after another. A thread copies
/// the same chunk column of several rows, so that it steps through (kernel row, kernel column, channels) once for all
/// rows.
template <int kTile>
class InputLoader {
  static constexpr MmaTile kT = kMmaTiles[kTile];
  static constexpr int kRowsPerPass = kT.threads() / kT.row_chunks();
  static constexpr int kRows = kT.block_m / kRowsPerPass;
  static_assert(kRowsPerPass % 8 == 0 && kRows * kRowsPerPass == kT.block_m, "one swizzle per thread");
  static constexpr uint32_t kNever = 0x8000;  // the bit of kernel row 15, which no kernel has

 public:
  __device__ __forceinline__ InputLoader(const MmaArgs& p, int first_pixel, int first_step) : p_(p) {
    const int chunk = threadIdx.x % kT.row_chunks(), first_row = threadIdx.x / kT.row_chunks();
    shared_offset_ = first_row * kT.block_k + mma_swizzle(kT.block_k, first_row, chunk) * 16;
    const int first_image = p.by_image.divide(first_pixel);
    base_ = p.x + (p.dense ? static_cast<int64_t>(first_pixel) * p.g.in_stride
                           : static_cast<int64_t>(first_image) * p.image_bytes);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      // Rows behind the last pixel repeat it; their sums are not stored.
      const int pixel = min(first_pixel + first_row + i * kRowsPerPass, p.out.pixels - 1);
      inside_[i] = 0;
      if (p.dense) {
        offset_[i] = (pixel - first_pixel) * p.g.in_stride;
      } else {
        place_window(i, pixel, first_image);
      }
    }
    const int index = first_step * kT.row_chunks() + chunk, tap = p.by_in_chunks.divide(index);
    channel_chunk_ = index - tap * p.in_chunks;
    kernel_row_ = p.by_kernel_w.divide(tap);
    kernel_column_ = tap - kernel_row_ * p.g.kernel_w;
  }

  /// Starts the copies of the next step into the stage at `shared`.
  __device__ __forceinline__ void load(uint32_t shared) {
    const bool behind = kernel_row_ >= p_.g.kernel_h;  // behind the sum's end weights are 0, so any code will do
    const int delta = behind ? 0 : kernel_row_ * p_.row_step + kernel_column_ * p_.column_step + channel_chunk_ * 16;
    shared += shared_offset_;
    if (p_.padded) {
      const uint32_t tap = behind ? kNever : (1u << kernel_row_) | (0x10000u << kernel_column_);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        copy_async_or_fill(shared + i * kRowsPerPass * kT.block_k, base_ + (offset_[i] + delta),
                           (inside_[i] & tap) == tap, p_.padding_word);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        copy_async(shared + i * kRowsPerPass * kT.block_k, base_ + (offset_[i] + delta));
      }
    }
    channel_chunk_ += kT.row_chunks();
    while (channel_chunk_ >= p_.in_chunks) {
      channel_chunk_ -= p_.in_chunks;
      if (++kernel_column_ == p_.g.kernel_w) kernel_column_ = 0, ++kernel_row_;
    }
  }

 private:
  __device__ __forceinline__ void place_window(int i, int pixel, int first_image) {
    const int image = p_.by_image.divide(pixel), in_image = pixel - image * static_cast<int>(p_.by_image.divisor);
    const int oy = p_.by_row.divide(in_image), ox = in_image - oy * static_cast<int>(p_.by_row.divisor);
    const int iy = oy * p_.g.stride_h - p_.g.pad_h, ix = ox * p_.g.stride_w - p_.g.pad_w;
    offset_[i] = (image - first_image) * p_.image_bytes + (iy * p_.g.in_w + ix) * p_.g.in_stride;
    if (!p_.padded) return;
    inside_[i] = taps_inside(iy, p_.g.in_h, p_.g.kernel_h, p_.by_dilation_h) |
                 taps_inside(ix, p_.g.in_w, p_.g.kernel_w, p_.by_dilation_w) << 16;
  }

  const MmaArgs& p_;
  const uint8_t* base_;
  int offset_[kRows];       ///< bytes from base_ to a row's window; may be negative at a border
  uint32_t inside_[kRows];  ///< bit r: kernel row r is inside the image; bit 16 + s: kernel column s is
  int kernel_row_, kernel_column_, channel_chunk_;  ///< position of this thread's chunk in the next step
  uint32_t shared_offset_;
};

/// Copies a block's tiles of weights, which have the same layout in memory as in a stage.
template <int kTile>
class WeightLoader {
  static constexpr MmaTile kT = kMmaTiles[kTile];
  static constexpr int kBytes = kT.block_n * kT.block_k, kPassBytes = kT.threads() * 16;
  static_assert(kBytes % kPassBytes == 0);

 public:
  __device__ __forceinline__ explicit WeightLoader(const uint8_t* first_tile) : from_(first_tile + threadIdx.x * 16) {}

  __device__ __forceinline__ void load(uint32_t shared) {
#pragma unroll
    for (int i = 0; i < kBytes / kPassBytes; ++i) {
      copy_async(shared + threadIdx.x * 16 + i * kPassBytes, from_ + i * kPassBytes);
    }
    from_ += kBytes;
  }

 private:
  const uint8_t* from_;
};

}  // namespace octet::kernels
