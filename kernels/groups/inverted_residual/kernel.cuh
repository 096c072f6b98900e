// SPDX-License-Identifier: Apache-2.0
// The kernel of inverted residuals in which a thread block computes one tile, in the steps of products.cuh. Included by
// the sources that CMake writes.
#pragma once

#include "kernels/core/launch.cuh"
#include "kernels/groups/inverted_residual/products.cuh"
#include "kernels/groups/inverted_residual/store.cuh"

namespace octet::kernels {

/// Expands the tile's input pixels to a chunk of hidden channels; a warp expands 16 pixels at once.
template <bool kRelu>
__device__ __forceinline__ void expand_tile(const InvertedArgs& p, const InvertedGroup& group, int chunk, int pixels) {
  const int lane = threadIdx.x % 32;
  const ExpandedChunk<kRelu> expanded(p, chunk);
  const int to = group.hidden + lane % 4 / 2 * p.shared.plane + lane % 2 * 8;
#pragma unroll 1
  for (int pixel = group.warp() * 16; pixel < pixels; pixel += group.threads / 2) {
    const uint32_t x =
        shared_address(inverted_shared) + p.shared.x + (pixel + lane % 16) * p.shared.x_pitch + lane / 16 * 16;
    uint2 codes[2];
    expanded.pixels(p, x, codes);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int position = shared_at<int>(p.shared.positions + (pixel + row * 8 + lane / 4) * 4);
      if (position >= 0) shared_at<uint2>(to + position) = codes[row];
    }
  }
}

/// Grid: (tiles, parts of the hidden channels); the parts are a cluster.
template <int kRows, int kStride, int kQuads, bool kRelu>
__global__ void __launch_bounds__(kMaxWarps * 32, inverted_min_blocks<kRows, kQuads>())
    inverted_residual_kernel(const __grid_constant__ InvertedArgs p) {
  const InvertedGroup group(p);
  const InvertedPlace at(p, kStride, blockIdx.x);
  const int part = blockIdx.y * p.groups + group.index, parts = p.parts * p.groups;
  const int first = p.tiles.chunks * part / parts, last = p.tiles.chunks * (part + 1) / parts;
  if (p.parts > 1) arrive_at_cluster();        // for gather_sums()
  load_chunk(p, group, first, group.weights);  // no kernel writes weights
  if (first + 1 < last) load_chunk(p, group, first + 1, group.weights + p.chunk.bytes);
  copy_async_commit();
  if (p.has_expand) find_pixels(p, at);
  fill_planes(p, group, 1);
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
  find_windows<kRows, kStride, false>(p, group, window);
  int32_t sum[kRows][kQuads * 4][4] = {};

#pragma unroll 1
  for (int c = first; c < last; ++c) {
    const int chunk = group.weights + (c - first) % 2 * p.chunk.bytes;
    const int next = group.weights + (c + 1 - first) % 2 * p.chunk.bytes;
    copy_async_wait<0>();
    group.wait();  // copies of all threads have arrived, and the previous chunk has been read
    if (p.has_expand) {
      if (c > first && c + 1 < last) load_chunk(p, group, c + 1, next);
      copy_async_commit();
      expand_tile<kRelu>(p, group, chunk, at.pixels);
    } else {
      for_windows(p, at, group, group.hidden, c,
                  [](int to, const uint8_t* from) { copy_async(shared_address(inverted_shared) + to, from); });
      if (c > first && c + 1 < last) load_chunk(p, group, c + 1, next);
      copy_async_commit();
      copy_async_wait<0>();
      if (p.flip_x) for_windows(p, at, group, group.hidden, c, [](int to, const uint8_t*) { flip_codes(to); });
    }
    group.wait();
    uint32_t codes[kRows][4] = {};
#pragma unroll 1
    for (int plane = 0; plane < 2; ++plane) depthwise<kRows, kStride, false, kRelu>(p, chunk, plane, window, codes);
    project<kRows, kQuads>(chunk + p.chunk.project, codes, sum);
  }
  store_tile<kRows, kQuads>(p, at, sum);
}

template <int kRows, int kStride, int kQuads>
void launch_inverted(const InvertedArgs& args, CudaStream stream) {
  const bool relu = (!args.has_expand || args.hidden.relu) && args.windows.relu;
  const auto kernel = relu ? inverted_residual_kernel<kRows, kStride, kQuads, true>
                           : inverted_residual_kernel<kRows, kStride, kQuads, false>;
  // Not an operation of the stream, so it is allowed during capture.
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
