// SPDX-License-Identifier: Apache-2.0
// The input of the kernels of inverted residuals: the arguments, computed on the host, and the copies of a tile's input
// pixels and of chunks of weights to shared memory. Include it in .cu files only.
#pragma once

#include "kernels/conv/cuda/epilogue.cuh"
#include "kernels/conv/cuda/ptx.cuh"
#include "kernels/core/cuda.h"
#include "kernels/core/divide.h"
#include "kernels/groups/inverted_residual/plan.h"

namespace octet::kernels {

struct InvertedArgs {
  ConvOutput out;             ///< output of the narrowing convolution
  CodeSteps hidden, windows;  ///< rounding of what expand and depthwise write
  InvertedChunk chunk;
  InvertedTiles tiles;
  InvertedShared shared;
  const uint8_t* chunks;  ///< [tiles.chunks, chunk.bytes]
  const uint8_t* x;       ///< [images, H, W, in_stride]

  int images, in_h, in_w, in_stride, out_h, out_w, pad_h, pad_w;
  int tile_w, strips, tile_images, groups, parts, turns;
  FastDivide by_tile_w, by_strips, by_halo_w;
  FastDivide by_x_pieces;   ///< divides by the number of 16-byte pieces of a pixel's input channels
  bool has_expand, flip_x;  ///< flip_x: x is int8
  uint32_t outside;         ///< four held codes of real 0
};

using InvertedLaunch = void (*)(const InvertedArgs& args, CudaStream stream);

/// Returns the launch of the kernel for kQuads quads of output channels, a stride, and rows of a warp; null if there is
/// none.
template <int kQuads>
InvertedLaunch inverted_launch(int stride, int rows);
/// Returns the launch of the kernel in turns.
template <int kQuads>
InvertedLaunch inverted_turns_launch(int stride, int rows);

/// Returns sum * multiplier + bias, rounded once and clamped to [0, 1].
__device__ __forceinline__ float rescale_to_unit(int32_t sum, float multiplier, float bias) {
  float scaled;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(scaled) : "f"(static_cast<float>(sum)), "f"(multiplier), "f"(bias));
  return scaled;
}

/// Waits until `threads` threads of the block have called it with this barrier (1 to 15); they then see what each
/// wrote.
template <int kBarrier>
__device__ __forceinline__ void wait_for_group(int threads) {
  asm volatile("bar.sync %0, %1;" ::"n"(kBarrier), "r"(threads) : "memory");
}

extern __shared__ __align__(128) uint8_t inverted_shared[];

/// Returns the object at a byte offset in the block's shared memory.
template <class T>
__device__ __forceinline__ T& shared_at(int address) {
  return *reinterpret_cast<T*>(inverted_shared + address);
}

/// A group of warps of a thread block, which computes the tile for its own hidden channels.
struct InvertedGroup {
  int index, threads, thread;
  int hidden, weights;  ///< offsets in shared memory of its two planes and of its two chunks of weights

  __device__ __forceinline__ explicit InvertedGroup(const InvertedArgs& p) : threads(p.tiles.warps * 32) {
    index = threadIdx.x / threads, thread = threadIdx.x - index * threads;
    hidden = p.shared.hidden + index * 2 * p.shared.plane;
    weights = index * 2 * p.chunk.bytes;
  }
  /// Returns the group of a block that has only one.
  static __device__ __forceinline__ InvertedGroup alone(const InvertedArgs& p) {
    InvertedGroup group;
    group.index = 0, group.threads = blockDim.x, group.thread = threadIdx.x;
    group.hidden = p.shared.hidden, group.weights = 0;
    return group;
  }
  __device__ __forceinline__ int warp() const { return thread / 32; }
  /// Waits for all threads of the group. Barriers have constant numbers, so that a block reserves no more than these.
  __device__ __forceinline__ void wait() const {
    static_assert(kMaxWarps / 2 == 4, "groups of two warps and more");
    if (threads == 32) return __syncwarp();
    switch (index) {
      case 0:
        return wait_for_group<1>(threads);
      case 1:
        return wait_for_group<2>(threads);
      case 2:
        return wait_for_group<3>(threads);
      default:
        return wait_for_group<4>(threads);
    }
  }

 private:
  InvertedGroup() = default;
};

/// The position of a tile, and the part of its input that is inside the images.
struct InvertedPlace {
  int image, oy, ox;     ///< first image, row and column of the output
  int top, left;         ///< first row and column of the input that windows reach; may be outside the image
  int first_y, first_x;  ///< first row and column inside the image, counted from top and left
  int inside_h, inside_w;
  int images, pixels;  ///< images of the tile; pixels inside, of all images

  __device__ __forceinline__ InvertedPlace(const InvertedArgs& p, int stride, int tile) {
    const int row = tile / p.tiles.across, group = row / p.tiles.down;
    image = group * p.tile_images;
    oy = (row - group * p.tiles.down) * p.tiles.height;
    ox = (tile - row * p.tiles.across) * p.tile_w;
    top = oy * stride - p.pad_h, left = ox * stride - p.pad_w;
    first_y = max(0, -top), first_x = max(0, -left);
    inside_h = max(0, min(p.tiles.halo_h, p.in_h - top) - first_y);
    inside_w = max(0, min(p.tiles.halo_w, p.in_w - left) - first_x);
    images = min(p.tile_images, p.images - image);
    pixels = inside_h * inside_w * images;
  }
};

/// Calls with(index of the row's first pixel in the tile, its byte offset in a plane, its address in x) for each row of
/// pixels inside the image that belongs to this warp, of `warps`.
template <class With>
__device__ __forceinline__ void for_rows(const InvertedArgs& p, const InvertedPlace& at, int warp, int warps,
                                         const With& with) {
  const int rows = at.images * at.inside_h;
#pragma unroll 1
  for (int row = warp; row < rows; row += warps) {
    const int image = at.images == 1 ? 0 : row / at.inside_h, y = at.first_y + row - image * at.inside_h;
    const int64_t in_x = (static_cast<int64_t>(at.image + image) * p.in_h + at.top + y) * p.in_w + at.left + at.first_x;
    with(row * at.inside_w, ((image * p.tiles.halo_h + y) * p.tiles.halo_w + at.first_x) * 16,
         p.x + in_x * p.in_stride);
  }
}

/// Writes the byte offset in a plane of every input pixel inside the image, and -1 for the pixels behind the last up to
/// a multiple of 16.
__device__ __forceinline__ void find_pixels(const InvertedArgs& p, const InvertedPlace& at) {
  const int lane = threadIdx.x % 32;
  for_rows(p, at, threadIdx.x / 32, blockDim.x / 32, [&](int first, int position, const uint8_t*) {
    for (int x = lane; x < at.inside_w; x += 32) {
      shared_at<int>(p.shared.positions + (first + x) * 4) = position + x * 16;
    }
  });
  const int behind = at.pixels + threadIdx.x;
  if (behind < (at.pixels + 15) / 16 * 16) shared_at<int>(p.shared.positions + behind * 4) = -1;
}

/// Fills both planes of each buffer with real 0. Later chunks write only pixels inside the images.
__device__ __forceinline__ void fill_planes(const InvertedArgs& p, const InvertedGroup& group, int buffers) {
  const uint4 outside = make_uint4(p.outside, p.outside, p.outside, p.outside);
  for (int i = group.thread * 16; i < buffers * 2 * p.shared.plane; i += group.threads * 16) {
    shared_at<uint4>(group.hidden + i) = outside;
  }
}

/// Begins to copy a chunk's weights and constants.
__device__ __forceinline__ void load_chunk(const InvertedArgs& p, const InvertedGroup& group, int chunk, int to) {
  const uint8_t* from = p.chunks + static_cast<int64_t>(chunk) * p.chunk.bytes;
  const uint32_t shared = shared_address(inverted_shared) + to;
  for (int i = group.thread * 16; i < p.chunk.bytes; i += group.threads * 16) copy_async(shared + i, from + i);
}

/// Calls with(offset in shared memory, source) for each 16 bytes of the tile's input channels that this thread copies,
/// in rows of x_pitch for the expanding product.
template <class With>
__device__ __forceinline__ void for_input(const InvertedArgs& p, const InvertedPlace& at, const With& with) {
  const int pieces = p.by_x_pieces.divisor;
  for_rows(p, at, threadIdx.x / 32, blockDim.x / 32, [&](int first, int, const uint8_t* from) {
#pragma unroll 1
    for (int i = threadIdx.x % 32; i < at.inside_w * pieces; i += 32) {
      const int x = p.by_x_pieces.divide(i), piece = i - x * pieces;
      with(p.shared.x + (first + x) * p.shared.x_pitch + piece * 16, from + x * p.in_stride + piece * 16);
    }
  });
}

/// Calls with(offset, source) in the same way if depthwise reads x: 16 channels of a pixel go to its position in a
/// plane.
template <class With>
__device__ __forceinline__ void for_windows(const InvertedArgs& p, const InvertedPlace& at, const InvertedGroup& group,
                                            int planes, int chunk, const With& with) {
  const int pieces = min(2, static_cast<int>(p.by_x_pieces.divisor) - chunk * 2);
  for_rows(p, at, group.warp(), group.threads / 32, [&](int, int position, const uint8_t* from) {
#pragma unroll 1
    for (int i = threadIdx.x % 32; i < at.inside_w * pieces; i += 32) {
      const int x = pieces == 2 ? i / 2 : i, plane = i - x * pieces;
      with(planes + plane * p.shared.plane + position + x * 16,
           from + x * p.in_stride + chunk * kHiddenChunk + plane * 16);
    }
  });
}

/// Turns 16 int8 codes that this thread has copied into held codes.
__device__ __forceinline__ void flip_codes(int at) {
  uint4& codes = shared_at<uint4>(at);
  codes.x ^= 0x80808080u, codes.y ^= 0x80808080u, codes.z ^= 0x80808080u, codes.w ^= 0x80808080u;
}

}  // namespace octet::kernels
