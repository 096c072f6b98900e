// The inverted residual in one kernel, all products on tensor cores (mma.m16n8k32). A thread block computes a tile of
// output pixels and all output channels, 32 hidden channels at a time:
//   expand     input pixels x 32 hidden channels, rounded to codes in shared memory; zero points lie around pictures
//   depthwise  16 pixels x 8 channels at once: row r of the window is a product over 3 pixels x 8 channels whose
//   weights
//              are 0 where channels differ. A warp walks down the rows of its columns, so that it reads each once
//   project    what a thread has rounded is its fragment of the narrowing product's input: it stays in registers
// Included by the files that instantiate kernels.
#pragma once

#include "kernels/cuda_launch.h"
#include "kernels/cuda_overlap.h"
#include "kernels/inverted_residual_int8/cuda/store.cuh"

namespace octet::kernels {

/// Fragments of two blocks of 8 columns, as packed.
__device__ __forceinline__ uint4 weight_fragments(int weight, int pair) {
  return shared_at<uint4>(weight + pair * 512 + threadIdx.x % 32 * 16);
}

/// Constants of kCount channels that a thread has: of arrays of kChannels, from `first` on.
template <int kCount, int kChannels>
struct HeldConstants {
  float multiplier[kCount], bias[kCount];
  int32_t start[kCount];

  __device__ __forceinline__ HeldConstants(int constants, int first) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const int at = constants + (first + i) * 4;
      const float4 scale = shared_at<float4>(at), plus = shared_at<float4>(at + kChannels * 4);
      const int4 from = shared_at<int4>(at + kChannels * 8);
      multiplier[i] = scale.x, multiplier[i + 1] = scale.y, multiplier[i + 2] = scale.z, multiplier[i + 3] = scale.w;
      bias[i] = plus.x, bias[i + 1] = plus.y, bias[i + 2] = plus.z, bias[i + 3] = plus.w;
      start[i] = from.x, start[i + 1] = from.y, start[i + 2] = from.z, start[i + 3] = from.w;
    }
  }
  /// Held codes of channels i to i + 3 in row `row` of two products.
  template <bool kRelu>
  __device__ __forceinline__ uint32_t codes(const CodeSteps& steps, int i, int row, const int32_t (&left)[4],
                                            const int32_t (&right)[4]) const {
    return steps.word<kRelu>(scaled<kRelu>(i, left[row * 2]), scaled<kRelu>(i + 1, left[row * 2 + 1]),
                             scaled<kRelu>(i + 2, right[row * 2]), scaled<kRelu>(i + 3, right[row * 2 + 1]));
  }

 private:
  template <bool kRelu>
  __device__ __forceinline__ float scaled(int i, int32_t sum) const {
    return kRelu ? rescale_to_unit(sum, multiplier[i], bias[i]) : rescale(sum, multiplier[i], bias[i]);
  }
};

/// Expands the tile's input pixels to a chunk of hidden channels, 16 pixels a warp at once.
template <bool kRelu>
__device__ __forceinline__ void expand_tile(const InvertedArgs& p, const InvertedGroup& group, int chunk, int pixels) {
  const int lane = threadIdx.x % 32;
  const HeldConstants<8, kHiddenChunk> constants(chunk + p.chunk.expand_constants, lane % 4 * 8);
  const uint4 first[2] = {weight_fragments(chunk, 0), weight_fragments(chunk, 1)};
  const int to = group.hidden + lane % 4 / 2 * p.shared.plane + lane % 2 * 8;
#pragma unroll 1
  for (int pixel = group.warp() * 16; pixel < pixels; pixel += group.threads / 2) {
    const uint32_t x =
        shared_address(inverted_shared) + p.shared.x + (pixel + lane % 16) * p.shared.x_pitch + lane / 16 * 16;
    int32_t sum[4][4];
    uint32_t a[4];
    load_matrices(a, x);
    multiply_from(sum[0], a, first[0].x, first[0].y, constants.start[0], constants.start[1]);
    multiply_from(sum[1], a, first[0].z, first[0].w, constants.start[2], constants.start[3]);
    multiply_from(sum[2], a, first[1].x, first[1].y, constants.start[4], constants.start[5]);
    multiply_from(sum[3], a, first[1].z, first[1].w, constants.start[6], constants.start[7]);
#pragma unroll 1
    for (int k = 1; k < p.chunk.k_steps; ++k) {
      const uint4 b[2] = {weight_fragments(chunk, k * 2), weight_fragments(chunk, k * 2 + 1)};
      load_matrices(a, x + k * 32);
      multiply_add<false>(sum[0], a, b[0].x, b[0].y);
      multiply_add<false>(sum[1], a, b[0].z, b[0].w);
      multiply_add<false>(sum[2], a, b[1].x, b[1].y);
      multiply_add<false>(sum[3], a, b[1].z, b[1].w);
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      uint32_t codes[2];
#pragma unroll
      for (int word = 0; word < 2; ++word) {
        codes[word] = constants.codes<kRelu>(p.hidden, word * 4, row, sum[word * 2], sum[word * 2 + 1]);
      }
      const int position = shared_at<int>(p.shared.positions + (pixel + row * 8 + lane / 4) * 4);
      if (position >= 0) shared_at<uint2>(to + position) = make_uint2(codes[0], codes[1]);
    }
  }
}

/// Depthwise windows of 16 hidden channels: kRows rows of output of the 16 columns of a warp. window[i]: address in the
/// plane of the first pixel of columns 8 i and on. codes[row]: words 2 and 3 of the narrowing product's fragments; what
/// was there becomes words 0 and 1.
template <int kRows, int kStride, bool kRelu>
__device__ __forceinline__ void depthwise(const InvertedArgs& p, int chunk, int plane, const int (&window)[2],
                                          uint32_t (&codes)[kRows][4]) {
  const int lane = threadIdx.x % 32, tap = lane % 4 / 2 * 16;
  uint4 weight[3];
#pragma unroll
  for (int r = 0; r < 3; ++r) weight[r] = weight_fragments(chunk + p.chunk.depthwise, plane * 3 + r);
  const HeldConstants<4, 16> constants(chunk + p.chunk.depthwise_constants + plane * 192, lane % 4 * 4);
  int from[2] = {window[0] + plane * p.shared.plane, window[1] + plane * p.shared.plane};
  int32_t sum[kRows][2][4];
#pragma unroll
  for (int y = 0; y < (kRows - 1) * kStride + 3; ++y) {
    uint2 x[4];  // of two pairs: taps 0 and 1 of columns 0 to 7, of 8 to 15; tap 2, which meets weight 0 as tap 3
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      x[i] = shared_at<uint2>(from[i] + tap);
      x[2 + i] = shared_at<uint2>(from[i] + 32);
      from[i] += p.tiles.halo_w * 16;
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
      auto& to = codes[(y - r) / kStride];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        to[i] = to[2 + i];
        to[2 + i] = constants.codes<kRelu>(p.windows, 0, i, of_row[0], of_row[1]);
      }
    }
  }
}

/// Registers of a thread: as many blocks as that leaves room for.
template <int kRows, int kQuads>
constexpr int inverted_min_blocks() {
  return kRows * kQuads <= 2 ? 2 : 1;
}

/// Grid: (tiles, parts of the hidden channels: a cluster).
template <int kRows, int kStride, int kQuads, bool kRelu>
__global__ void __launch_bounds__(kMaxWarps * 32, inverted_min_blocks<kRows, kQuads>())
    inverted_residual_kernel(const __grid_constant__ InvertedArgs p) {
  const int lane = threadIdx.x % 32;
  const InvertedGroup group(p);
  const InvertedPlace at(p, kStride);
  const int part = blockIdx.y * p.groups + group.index, parts = p.parts * p.groups;
  const int first = p.tiles.chunks * part / parts, last = p.tiles.chunks * (part + 1) / parts;
  if (p.parts > 1) arrive_at_cluster();        // for gather_sums()
  load_chunk(p, group, first, group.weights);  // no kernel writes weights
  if (first + 1 < last) load_chunk(p, group, first + 1, group.weights + p.chunk.bytes);
  copy_async_commit();
  if (p.has_expand) find_pixels(p, at);
  fill_planes(p, group);
  __syncthreads();
  wait_for_previous_kernel();
  if (p.has_expand) {
    for_input(p, at, [](int to, const uint8_t* from) { copy_async(shared_address(inverted_shared) + to, from); });
    copy_async_commit();
    copy_async_wait<0>();
    if (p.flip_x) for_input(p, at, [](int to, const uint8_t*) { flip_codes(to); });
    __syncthreads();
  }

  int window[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {  // columns behind the last read the first's pixels
    const int position = group.warp() * 16 + i * 8 + lane / 4;
    const InvertedColumn column = InvertedColumn::at<kRows>(p, position < p.tiles.positions ? position : 0);
    window[i] = group.hidden + lane % 2 * 8 +
                ((column.image * p.tiles.halo_h + column.y * kStride) * p.tiles.halo_w + column.x * kStride) * 16;
  }
  int32_t sum[kRows][kQuads * 4][4] = {};

#pragma unroll 1
  for (int c = first; c < last; ++c) {
    const int chunk = group.weights + (c - first) % 2 * p.chunk.bytes;
    const int next = group.weights + (c + 1 - first) % 2 * p.chunk.bytes;
    copy_async_wait<0>();
    group.wait();  // copies of all threads are there, and the chunk before this one was read
    if (p.has_expand) {
      if (c > first && c + 1 < last) load_chunk(p, group, c + 1, next);
      copy_async_commit();
      expand_tile<kRelu>(p, group, chunk, at.pixels);
    } else {
      for_windows(p, at, group, c,
                  [](int to, const uint8_t* from) { copy_async(shared_address(inverted_shared) + to, from); });
      if (c > first && c + 1 < last) load_chunk(p, group, c + 1, next);
      copy_async_commit();
      copy_async_wait<0>();
      if (p.flip_x) for_windows(p, at, group, c, [](int to, const uint8_t*) { flip_codes(to); });
    }
    group.wait();
    uint32_t codes[kRows][4] = {};
#pragma unroll 1
    for (int plane = 0; plane < 2; ++plane) depthwise<kRows, kStride, kRelu>(p, chunk, plane, window, codes);
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
  store_tile<kRows, kQuads>(p, at, sum);
}

template <int kRows, int kStride, int kQuads>
void launch_inverted(const InvertedArgs& args, CudaStream stream) {
  const bool relu = (!args.has_expand || args.hidden.relu) && args.windows.relu;
  const auto kernel = relu ? inverted_residual_kernel<kRows, kStride, kQuads, true>
                           : inverted_residual_kernel<kRows, kStride, kQuads, false>;
  // Not an operation of the stream: allowed while it is captured.
  check_launch("inverted_residual",
               cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, args.shared.bytes));
  launch_overlapped_clusters(kernel, dim3(args.tiles.tiles(), args.parts), dim3(1, args.parts),
                             args.tiles.warps * args.groups * 32, args.shared.bytes, stream, args);
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
