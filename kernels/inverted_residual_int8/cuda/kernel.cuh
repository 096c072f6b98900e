// The inverted residual in one kernel, all products on tensor cores (mma.m16n8k32). A thread block computes a tile of
// output pixels and all output channels, 32 hidden channels at a time:
//   expand     input pixels x 32 hidden channels, rounded to codes in shared memory; zero points lie around pictures
//   depthwise  16 pixels x 8 channels at once: row r of the window is a product over 3 pixels x 8 channels whose
//   weights
//              are 0 where channels differ. A warp walks down the rows of its columns, so that it reads each once
//   project    what a thread has rounded is its fragment of the narrowing product's input: it stays in registers
// Where hidden channels are shared by the blocks of a cluster, each adds up the sums of some of the output.
// Included by the files that instantiate kernels.
#pragma once

#include "kernels/cuda_launch.h"
#include "kernels/cuda_overlap.h"
#include "kernels/inverted_residual_int8/cuda/load.cuh"

namespace octet::kernels {

/// Fragments of two blocks of 8 columns, as packed.
__device__ __forceinline__ uint4 weight_fragments(const uint8_t* weight, int pair) {
  return *reinterpret_cast<const uint4*>(weight + pair * 512 + threadIdx.x % 32 * 16);
}

/// Constants of kCount channels that a thread has: of an array of `channels` a constant, from `first` on.
template <int kCount>
struct HeldConstants {
  float multiplier[kCount], bias[kCount];
  int32_t start[kCount];

  __device__ __forceinline__ HeldConstants(const uint8_t* constants, int channels, int first) {
    const float4* m = reinterpret_cast<const float4*>(constants) + first / 4;
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const float4 scale = m[i / 4], plus = m[channels / 4 + i / 4];
      const int4 from = reinterpret_cast<const int4*>(m)[channels / 2 + i / 4];
      multiplier[i] = scale.x, multiplier[i + 1] = scale.y, multiplier[i + 2] = scale.z, multiplier[i + 3] = scale.w;
      bias[i] = plus.x, bias[i + 1] = plus.y, bias[i + 2] = plus.z, bias[i + 3] = plus.w;
      start[i] = from.x, start[i + 1] = from.y, start[i + 2] = from.z, start[i + 3] = from.w;
    }
  }
  __device__ __forceinline__ float operator()(int i, int32_t sum) const { return rescale(sum, multiplier[i], bias[i]); }
};

/// Expands kCount times 16 input pixels, `step` apart, to 32 hidden channels.
template <int kCount>
__device__ __forceinline__ void expand(const InvertedArgs& p, const uint8_t* weight, const HeldConstants<8>& constants,
                                       int first_pixel, int step) {
  const int lane = threadIdx.x % 32;
  const uint32_t x =
      shared_address(inverted_shared) + p.shared.x + (first_pixel + lane % 16) * p.shared.x_pitch + lane / 16 * 16;
  int32_t sum[kCount][4][4];
  for (int k = 0; k < p.chunk.k_steps; ++k) {
    const uint4 b[2] = {weight_fragments(weight, k * 2), weight_fragments(weight, k * 2 + 1)};
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      uint32_t a[4];
      load_matrices(a, x + i * step * p.shared.x_pitch + k * 32);
      if (k == 0) {
        multiply_from(sum[i][0], a, b[0].x, b[0].y, constants.start[0], constants.start[1]);
        multiply_from(sum[i][1], a, b[0].z, b[0].w, constants.start[2], constants.start[3]);
        multiply_from(sum[i][2], a, b[1].x, b[1].y, constants.start[4], constants.start[5]);
        multiply_from(sum[i][3], a, b[1].z, b[1].w, constants.start[6], constants.start[7]);
      } else {
        multiply_add<false>(sum[i][0], a, b[0].x, b[0].y);
        multiply_add<false>(sum[i][1], a, b[0].z, b[0].w);
        multiply_add<false>(sum[i][2], a, b[1].x, b[1].y);
        multiply_add<false>(sum[i][3], a, b[1].z, b[1].w);
      }
    }
  }
  const int* positions = reinterpret_cast<const int*>(inverted_shared + p.shared.positions);
  uint8_t* to = inverted_shared + p.shared.hidden + lane % 4 / 2 * p.shared.plane + lane % 2 * 8;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      uint32_t codes[2];
#pragma unroll
      for (int word = 0; word < 2; ++word) {
        const int32_t(&left)[4] = sum[i][word * 2], (&right)[4] = sum[i][word * 2 + 1];
        codes[word] =
            p.hidden.word(constants(word * 4, left[row * 2]), constants(word * 4 + 1, left[row * 2 + 1]),
                          constants(word * 4 + 2, right[row * 2]), constants(word * 4 + 3, right[row * 2 + 1]));
      }
      p.hidden.limit(codes);
      const int position = positions[first_pixel + i * step + row * 8 + lane / 4];
      if (position >= 0) *reinterpret_cast<uint2*>(to + position) = make_uint2(codes[0], codes[1]);
    }
  }
}

/// Expands the tile's input pixels to a chunk of hidden channels.
__device__ __forceinline__ void expand_tile(const InvertedArgs& p, const uint8_t* chunk, int pixels) {
  const int lane = threadIdx.x % 32, step = blockDim.x / 2;  // 16 pixels a warp
  const HeldConstants<8> constants(chunk + p.chunk.expand_constants, kHiddenChunk, lane % 4 * 8);
  for (int first = threadIdx.x / 32 * 16; first < pixels; first += 2 * step) {
    if (first + step < pixels) {
      expand<2>(p, chunk, constants, first, step);
    } else {
      expand<1>(p, chunk, constants, first, step);
    }
  }
}

/// Depthwise windows of 16 hidden channels: kRows rows of output of the 16 columns of a warp. window[i]: addresses in
/// the plane of the first pixel of row i * 8 of fragments. codes[row]: fragments of the narrowing product, words 2
/// plane and on.
template <int kRows, int kStride>
__device__ __forceinline__ void depthwise(const InvertedArgs& p, const uint8_t* chunk, int plane,
                                          const uint8_t* (&window)[2], uint32_t (&codes)[kRows][4]) {
  const int lane = threadIdx.x % 32, tap = lane % 4 / 2 * 16;
  uint4 weight[3];
#pragma unroll
  for (int r = 0; r < 3; ++r) weight[r] = weight_fragments(chunk + p.chunk.depthwise, plane * 3 + r);
  const HeldConstants<4> constants(chunk + p.chunk.depthwise_constants + plane * 192, 16, lane % 4 * 4);
  const int row_bytes = p.tiles.halo_w * 16;
  int32_t sum[kRows][2][4];
#pragma unroll
  for (int y = 0; y < (kRows - 1) * kStride + 3; ++y) {
    uint2 x[4];  // of two pairs: taps 0 and 1 of columns 0 to 7, of 8 to 15; tap 2, which meets weight 0 as tap 3
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint8_t* from = window[i] + plane * p.shared.plane + y * row_bytes;
      x[i] = *reinterpret_cast<const uint2*>(from + tap);
      x[2 + i] = *reinterpret_cast<const uint2*>(from + 32);
    }
    const uint32_t a[2][4] = {{x[0].x, x[1].x, x[2].x, x[3].x}, {x[0].y, x[1].y, x[2].y, x[3].y}};
#pragma unroll
    for (int r = 0; r < 3; ++r) {
      if (y < r || (y - r) % kStride != 0 || (y - r) / kStride >= kRows) continue;
      auto& of_row = sum[(y - r) / kStride];
      if (r == 0) {
        multiply_from(of_row[0], a[0], weight[r].x, weight[r].y, constants.start[0], constants.start[1]);
        multiply_from(of_row[1], a[1], weight[r].z, weight[r].w, constants.start[2], constants.start[3]);
      } else {
        multiply_add<false>(of_row[0], a[0], weight[r].x, weight[r].y);
        multiply_add<false>(of_row[1], a[1], weight[r].z, weight[r].w);
      }
      if (r < 2) continue;
      uint32_t word[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        word[i] = p.windows.word(constants(0, of_row[0][i * 2]), constants(1, of_row[0][i * 2 + 1]),
                                 constants(2, of_row[1][i * 2]), constants(3, of_row[1][i * 2 + 1]));
      }
      p.windows.limit(word);
      auto& to = codes[(y - r) / kStride];
      if (plane == 0) {
        to[0] = word[0], to[1] = word[1];
      } else {
        to[2] = word[0], to[3] = word[1];
      }
    }
  }
}

/// Where a column of a tile is: its first row of output.
struct InvertedColumn {
  int image, y, x;  ///< from the tile's first

  template <int kRows>
  static __device__ __forceinline__ InvertedColumn at(const InvertedArgs& p, int position) {
    const int strip = p.by_tile_w.divide(position), image = p.by_strips.divide(strip);
    return {image, (strip - image * p.strips) * kRows, position - strip * p.tile_w};
  }
};

/// Ends 32 channels of 16 pixels: row `row` of the columns of warp `warp`.
template <int kRows>
__device__ __forceinline__ void store_tile(const InvertedArgs& p, const InvertedPlace& at, int warp, int row, int quad,
                                           const int32_t (&sum)[4][4]) {
  const int lane = threadIdx.x % 32, channel = quad * 32 + lane % 4 * 8;
  if (channel >= p.out.out_c) return;
  const ResidualCodes residual(p.out.epilogue);
  const float4* multiplier = reinterpret_cast<const float4*>(p.out.constants.multiplier + channel);
  const float4* bias = reinterpret_cast<const float4*>(p.out.constants.bias + channel);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int position = warp * 16 + i * 8 + lane / 4;
    if (position >= p.tiles.positions) continue;
    const InvertedColumn column = InvertedColumn::at<kRows>(p, position);
    const int image = at.image + column.image, y = at.oy + column.y + row, x = at.ox + column.x;
    if (image >= p.images || y >= p.out_h || x >= p.out_w) continue;
    const int64_t pixel = (static_cast<int64_t>(image) * p.out_h + y) * p.out_w + x;
    CodeWords<2> codes;
    if (p.out.residual != nullptr) codes.load(p.out.residual + pixel * p.out.residual_stride + channel);
#pragma unroll
    for (int word = 0; word < 2; ++word) {
      const int32_t acc[4] = {sum[word * 2][i * 2], sum[word * 2][i * 2 + 1], sum[word * 2 + 1][i * 2],
                              sum[word * 2 + 1][i * 2 + 1]};
      codes.word[word] = p.out.residual != nullptr
                             ? finish_codes<true>(p.out, residual, acc, multiplier[word], bias[word], codes.word[word])
                             : finish_codes<false>(p.out, residual, acc, multiplier[word], bias[word], 0);
    }
    p.out.rounding.finish(codes.word);
    codes.store(static_cast<uint8_t*>(p.out.y) + pixel * p.out.out_stride + channel);
  }
}

/// Adds up the sums of the cluster's blocks, of which each ends its share of the output.
template <int kRows, int kQuads>
__device__ __forceinline__ void store_cluster(const InvertedArgs& p, const InvertedPlace& at,
                                              const int32_t (&sum)[kRows][kQuads * 4][4]) {
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32, lane = threadIdx.x % 32, part = blockIdx.y;
  int4* mine = reinterpret_cast<int4*>(inverted_shared) + lane;
  __syncthreads();  // what lies there was read
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
#pragma unroll
    for (int n = 0; n < kQuads * 4; ++n) {
      const int32_t(&v)[4] = sum[row][n];
      mine[((warp * kRows + row) * kQuads * 4 + n) * 32] = make_int4(v[0], v[1], v[2], v[3]);
    }
  }
  wait_for_cluster();
  // A unit is 32 channels of 16 pixels.
  for (int unit = warp * p.parts + part; unit < warps * kRows * kQuads; unit += warps * p.parts) {
    int32_t total[4][4] = {};
    const uint32_t from = shared_address(mine + unit * 4 * 32);
    for (int other = 0; other < p.parts; ++other) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int4 v = load_from_block(from + n * 512, other);
        total[n][0] += v.x, total[n][1] += v.y, total[n][2] += v.z, total[n][3] += v.w;
      }
    }
    const int row_of_warp = unit / kQuads;
    store_tile<kRows>(p, at, row_of_warp / kRows, row_of_warp % kRows, unit % kQuads, total);
  }
  wait_for_cluster();  // a block's sums stay until all have read them
}

/// Grid: (tiles, parts of the hidden channels: a cluster).
template <int kRows, int kStride, int kQuads>
__global__ void __launch_bounds__(kMaxWarps * 32) inverted_residual_kernel(const __grid_constant__ InvertedArgs p) {
  const int part = blockIdx.y, lane = threadIdx.x % 32;
  const int first = p.tiles.chunks * part / p.parts, last = p.tiles.chunks * (part + 1) / p.parts;
  const InvertedPlace at(p, kStride);
  load_chunk(p, first, 0);  // no kernel writes weights
  copy_async_commit();
  find_pixels(p, at);
  fill_planes(p);
  __syncthreads();
  wait_for_previous_kernel();
  if (p.has_expand) {
    for_input(p, at, [](int to, const uint8_t* from) { copy_async(shared_address(inverted_shared) + to, from); });
    copy_async_commit();
  }

  const uint8_t* window[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {  // columns behind the last read the first's pixels
    const int position = threadIdx.x / 32 * 16 + i * 8 + lane / 4;
    const InvertedColumn column = InvertedColumn::at<kRows>(p, position < p.tiles.positions ? position : 0);
    window[i] = inverted_shared + p.shared.hidden + lane % 2 * 8 +
                ((column.image * p.tiles.halo_h + column.y * kStride) * p.tiles.halo_w + column.x * kStride) * 16;
  }
  int32_t sum[kRows][kQuads * 4][4];
#pragma unroll
  for (int n = 0; n < kQuads * 4; ++n) {
    const int channel = n / 4 * 32 + lane % 4 * 8 + n % 4 * 2;
    const int2 start = part == 0 ? *reinterpret_cast<const int2*>(p.out.constants.init + channel) : make_int2(0, 0);
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      sum[row][n][0] = sum[row][n][2] = start.x;
      sum[row][n][1] = sum[row][n][3] = start.y;
    }
  }

  for (int c = first; c < last; ++c) {
    copy_async_wait<0>();
    if (c == first && p.has_expand && p.flip_x) for_input(p, at, [](int to, const uint8_t*) { flip_codes(to); });
    __syncthreads();  // copies of all threads are there, and the chunk before this one was read
    const uint8_t* chunk = inverted_shared + (c - first) % 2 * p.chunk.bytes;
    if (p.has_expand) {
      if (c + 1 < last) load_chunk(p, c + 1, (c + 1 - first) % 2);
      copy_async_commit();
      expand_tile(p, chunk, at.pixels);
    } else {
      for_windows(p, at, c,
                  [](int to, const uint8_t* from) { copy_async(shared_address(inverted_shared) + to, from); });
      if (c + 1 < last) load_chunk(p, c + 1, (c + 1 - first) % 2);
      copy_async_commit();
      copy_async_wait<0>();
      if (p.flip_x) for_windows(p, at, c, [](int to, const uint8_t*) { flip_codes(to); });
    }
    __syncthreads();
    uint32_t codes[kRows][4];
    depthwise<kRows, kStride>(p, chunk, 0, window, codes);
    depthwise<kRows, kStride>(p, chunk, 1, window, codes);
#pragma unroll
    for (int n = 0; n < kQuads * 4; n += 2) {
      const uint4 b = weight_fragments(chunk + p.chunk.project, n / 2);
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        multiply_add<false>(sum[row][n], codes[row], b.x, b.y);
        multiply_add<false>(sum[row][n + 1], codes[row], b.z, b.w);
      }
    }
  }

  if (p.parts > 1) {
    store_cluster<kRows, kQuads>(p, at, sum);
    return;
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
#pragma unroll
    for (int quad = 0; quad < kQuads; ++quad) {
      int32_t of_quad[4][4];
#pragma unroll
      for (int i = 0; i < 16; ++i) of_quad[i / 4][i % 4] = sum[row][quad * 4 + i / 4][i % 4];
      store_tile<kRows>(p, at, threadIdx.x / 32, row, quad, of_quad);
    }
  }
}

template <int kRows, int kStride, int kQuads>
void launch_inverted(const InvertedArgs& args, CudaStream stream) {
  const auto kernel = inverted_residual_kernel<kRows, kStride, kQuads>;
  // Not an operation of the stream: allowed while it is captured.
  check_launch("inverted_residual",
               cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, args.shared.bytes));
  launch_overlapped_clusters(kernel, dim3(args.tiles.tiles(), args.parts), dim3(1, args.parts), args.tiles.warps * 32,
                             args.shared.bytes, stream, args);
  check_launch("inverted_residual");
}

template <int kQuads>
InvertedLaunch inverted_launch(int stride, int rows) {
  constexpr int kMost = inverted_max_rows(kQuads);
  if (rows == 1) return stride == 1 ? launch_inverted<1, 1, kQuads> : launch_inverted<1, 2, kQuads>;
  if constexpr (kMost >= 2) {
    if (rows == 2) return stride == 1 ? launch_inverted<2, 1, kQuads> : launch_inverted<2, 2, kQuads>;
  }
  if constexpr (kMost >= 4) {
    if (rows == 4) return stride == 1 ? launch_inverted<4, 1, kQuads> : launch_inverted<4, 2, kQuads>;
  }
  return nullptr;
}

}  // namespace octet::kernels
