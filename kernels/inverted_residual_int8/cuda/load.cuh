// From tensors to shared memory: a tile's input pixels and chunks of weights. Include it in .cu files only.
#pragma once

#include "kernels/inverted_residual_int8/cuda/args.cuh"
#include "kernels/inverted_residual_int8/cuda/ptx.cuh"

namespace octet::kernels {

extern __shared__ __align__(128) uint8_t inverted_shared[];

/// Where a thread block's tile lies, and the part of what it reads that is inside the pictures.
struct InvertedPlace {
  int image, oy, ox;     ///< first image, row and column of the output
  int top, left;         ///< first row and column of the input that windows reach; may be outside
  int first_y, first_x;  ///< of what is inside, from top and left
  int inside_h, inside_w;
  int pixels;  ///< inside, of all the tile's images

  __device__ __forceinline__ InvertedPlace(const InvertedArgs& p, int stride) {
    const int row = blockIdx.x / p.tiles.across, group = row / p.tiles.down;
    image = group * p.tile_images;
    oy = (row - group * p.tiles.down) * p.tiles.height;
    ox = (blockIdx.x - row * p.tiles.across) * p.tile_w;
    top = oy * stride - p.pad_h, left = ox * stride - p.pad_w;
    first_y = max(0, -top), first_x = max(0, -left);
    inside_h = max(0, min(p.tiles.halo_h, p.in_h - top) - first_y);
    inside_w = max(0, min(p.tiles.halo_w, p.in_w - left) - first_x);
    pixels = inside_h * inside_w * min(p.tile_images, p.images - image);
  }
};

/// Writes, for every input pixel inside, where it lies in x (in pixels) and in a plane (in bytes). Rows behind the
/// last, up to a multiple of 16, have none: -1.
__device__ __forceinline__ void find_pixels(const InvertedArgs& p, const InvertedPlace& at) {
  int* positions = reinterpret_cast<int*>(inverted_shared + p.shared.positions);
  int* sources = reinterpret_cast<int*>(inverted_shared + p.shared.sources);
  const int of_plane = p.tiles.halo_h * p.tiles.halo_w, end = (at.pixels + 15) / 16 * 16;
  for (int i = threadIdx.x; i < end; i += blockDim.x) {
    if (i >= at.pixels) {
      positions[i] = -1;
      continue;
    }
    const int row = i / at.inside_w, image = row / at.inside_h;
    const int y = at.first_y + row - image * at.inside_h, x = at.first_x + i - row * at.inside_w;
    positions[i] = (image * of_plane + y * p.tiles.halo_w + x) * 16;
    sources[i] = ((at.image + image) * p.in_h + at.top + y) * p.in_w + at.left + x;
  }
}

/// What lies outside pictures is real 0 in both planes; no later chunk writes there.
__device__ __forceinline__ void fill_planes(const InvertedArgs& p) {
  uint4* planes = reinterpret_cast<uint4*>(inverted_shared + p.shared.hidden);
  const uint4 outside = make_uint4(p.outside, p.outside, p.outside, p.outside);
  for (int i = threadIdx.x; i < p.shared.plane / 8; i += blockDim.x) planes[i] = outside;
}

/// Starts the copies of a chunk's weights and constants.
__device__ __forceinline__ void load_chunk(const InvertedArgs& p, int chunk, int stage) {
  const uint8_t* from = p.chunks + static_cast<int64_t>(chunk) * p.chunk.bytes;
  const uint32_t to = shared_address(inverted_shared) + stage * p.chunk.bytes;
  for (int i = threadIdx.x * 16; i < p.chunk.bytes; i += blockDim.x * 16) copy_async(to + i, from + i);
}

/// Calls with(address in shared memory, source) for each 16 bytes of the tile's input channels that this thread copies:
/// as rows of x_pitch for the expanding product.
template <class With>
__device__ __forceinline__ void for_input(const InvertedArgs& p, const InvertedPlace& at, const With& with) {
  const int* sources = reinterpret_cast<const int*>(inverted_shared + p.shared.sources);
  const int pieces = p.by_x_pieces.divisor;
  for (int i = threadIdx.x; i < at.pixels * pieces; i += blockDim.x) {
    const int pixel = p.by_x_pieces.divide(i), piece = i - pixel * pieces;
    with(p.shared.x + pixel * p.shared.x_pitch + piece * 16,
         p.x + static_cast<int64_t>(sources[pixel]) * p.in_stride + piece * 16);
  }
}

/// The same where depthwise reads x: 16 channels of a pixel are its place in a plane.
template <class With>
__device__ __forceinline__ void for_windows(const InvertedArgs& p, const InvertedPlace& at, int chunk,
                                            const With& with) {
  const int* positions = reinterpret_cast<const int*>(inverted_shared + p.shared.positions);
  const int* sources = reinterpret_cast<const int*>(inverted_shared + p.shared.sources);
  const int pieces = min(2, static_cast<int>(p.by_x_pieces.divisor) - chunk * 2);
  for (int i = threadIdx.x; i < at.pixels * pieces; i += blockDim.x) {
    const int pixel = pieces == 2 ? i / 2 : i, plane = i - pixel * pieces;
    with(p.shared.hidden + plane * p.shared.plane + positions[pixel],
         p.x + static_cast<int64_t>(sources[pixel]) * p.in_stride + chunk * kHiddenChunk + plane * 16);
  }
}

/// int8 codes that this thread copied become held codes.
__device__ __forceinline__ void flip_codes(int at) {
  uint4& codes = *reinterpret_cast<uint4*>(inverted_shared + at);
  codes.x ^= 0x80808080u, codes.y ^= 0x80808080u, codes.z ^= 0x80808080u, codes.w ^= 0x80808080u;
}

}  // namespace octet::kernels
