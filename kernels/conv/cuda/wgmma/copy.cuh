// SPDX-License-Identifier: Apache-2.0
// What the copying warps of a block of the wgmma convolution do: each of three threads copies input and weights to the
// stages, residuals to the buffers where tiles are finished, or finished codes to memory. Include it in .cu files only.
#pragma once

#include "kernels/conv/cuda/wgmma/ring.cuh"

namespace octet::kernels {

/// Returns the output pixel that is row `row` of all tiles' rows, or a negative number if there is none.
template <int kTile>
__device__ __forceinline__ int output_pixel(const WgmmaArgs& p, int row) {
  if constexpr (!kWgmmaTiles[kTile].shifted()) return row < p.end.pixels ? row : -1;
  const int image = p.by_padded_image.divide(row), in_image = row - image * static_cast<int>(p.by_padded_image.divisor);
  const int y = p.by_padded_row.divide(in_image), x = in_image - y * static_cast<int>(p.by_padded_row.divisor);
  return image < p.images && y < p.g.out_h && x < p.g.out_w ? (image * p.g.out_h + y) * p.g.out_w + x : -1;
}

/// Copies the weights that stay in shared memory, those of the block's channels. Called by one thread.
template <int kTile>
__device__ __forceinline__ void copy_held(const WgmmaArgs& p, const WgmmaMemory& memory) {
  constexpr uint32_t kBytes = kWgmmaTiles[kTile].step_bytes();
  const int taps = p.plan.taps, n_tile = blockIdx.x % p.plan.n_tiles;
  const uint8_t* from = p.weight + static_cast<int64_t>(n_tile) * p.plan.chunks * taps * kBytes;
  for (int chunk = 0; chunk < p.plan.chunks; ++chunk) {
    const uint32_t barrier = memory.weights_there(chunk);
    barrier_arrive_expecting(barrier, taps * kBytes);
    for (int tap = 0; tap < taps; ++tap) {
      const uint32_t offset = (chunk * taps + tap) * kBytes;
      copy_bulk(memory.held + offset, from + offset, kBytes, barrier);
    }
  }
}

/// Returns the bytes that are copied to a stage.
template <int kTile>
__device__ __forceinline__ uint32_t bytes_of_stage(const WgmmaArgs& p) {
  constexpr WgmmaTile kT = kWgmmaTiles[kTile];
  return p.plan.x_rows * kT.block_k + (kT.streamed() ? kT.step_bytes() : 0);
}

/// Copies the weights of the block's first stages, if weights are streamed, and returns how many stages. Called by one
/// thread.
template <int kTile>
__device__ __forceinline__ int copy_weights_ahead(const WgmmaArgs& p, const WgmmaMemory& memory) {
  constexpr uint32_t kBytes = kWgmmaTiles[kTile].step_bytes();
  const int steps = p.plan.chunks * p.plan.taps, stages = min(p.plan.stages, steps);
  const int n_tile = blockIdx.x - p.by_n_tiles.divide(blockIdx.x) * p.plan.n_tiles;
  const uint8_t* weight = p.weight + static_cast<int64_t>(n_tile) * steps * kBytes;
  WgmmaRing ring(p, memory, 0);
  for (int stage = 0; stage < stages; ++stage, weight += kBytes) {
    barrier_arrive_expecting(ring.full(), bytes_of_stage<kTile>(p));
    copy_bulk(ring.weight(), weight, kBytes, ring.full());
    ring.next();
  }
  return stages;
}

/// Copies what a tile needs, each stage as soon as it is free; for the first `ahead` stages only the input. Called by
/// one thread.
template <int kTile>
__device__ __forceinline__ void copy_tile(const WgmmaArgs& p, const WgmmaMemory& memory, int m_tile, int n_tile,
                                          WgmmaRing& ring, int& ahead) {
  constexpr WgmmaTile kT = kWgmmaTiles[kTile];
  constexpr bool kShifted = kT.shifted(), kStreamed = kT.streamed();
  constexpr uint32_t kWeightBytes = kT.step_bytes();
  const FastDivide &by_image = kShifted ? p.by_padded_image : p.end.by_image,
                   &by_row = kShifted ? p.by_padded_row : p.end.by_row;
  const int row = m_tile * kT.group_m;
  const int image = by_image.divide(row), in_image = row - image * static_cast<int>(by_image.divisor);
  const int oy = by_row.divide(in_image), ox = in_image - oy * static_cast<int>(by_row.divisor);
  const int y = oy * p.g.stride_h - p.g.pad_h, x = ox * p.g.stride_w - p.g.pad_w;
  const uint8_t* weight = p.weight + static_cast<int64_t>(n_tile) * p.plan.chunks * p.plan.taps * kWeightBytes;
  for (int chunk = 0; chunk < p.plan.chunks; ++chunk) {
    for (int r = 0; r < (kShifted ? 1 : p.g.kernel_h); ++r) {
      for (int s = 0; s < (kShifted ? 1 : p.g.kernel_w); ++s) {
        const bool begun = kStreamed && ahead > 0;
        if (!begun) {
          ring.wait_empty();
          barrier_arrive_expecting(ring.full(), bytes_of_stage<kTile>(p));
        }
        if (!kShifted && p.dense) {
          copy_box(ring.x(), p.x, chunk * kT.block_k, row, ring.full());
        } else {
          copy_windows(ring.x(), p.x, chunk * kT.block_k, x, y, image, s * p.g.dilation_w, r * p.g.dilation_h,
                       ring.full());
        }
        if constexpr (kStreamed) {
          if (!begun) copy_bulk(ring.weight(), weight, kWeightBytes, ring.full());
          weight += kWeightBytes, ahead -= begun;
        }
        ring.next();
      }
    }
  }
}

/// Prefetches the residual of a tile whose pixels are not contiguous into the L2 cache, while earlier tiles are
/// computed. Called by a warp.
template <int kTile>
__device__ __forceinline__ void prefetch_residual(const WgmmaArgs& p, int m_tile, int n_tile) {
  constexpr WgmmaTile kT = kWgmmaTiles[kTile];
  const WgmmaOutput& out = p.end;
  const int channel = n_tile * kT.block_n;
  for (int row = threadIdx.x % 32; row < kT.group_m; row += 32) {
    const int pixel = output_pixel<kTile>(p, m_tile * kT.group_m + row);
    const uint8_t* from = out.residual + static_cast<int64_t>(pixel) * out.residual_stride + channel;
#pragma unroll
    for (int n = 0; n < kT.block_n; n += 64) {
      if (pixel >= 0 && channel + n < out.out_c) prefetch_l2(from + n);
    }
  }
}

/// Copies the input of all tiles of the block. Called by a warp, of which one thread has `copies` set. ahead: stages
/// whose weights are already being copied.
template <int kTile>
__device__ __forceinline__ void copy_tiles(const WgmmaArgs& p, const WgmmaMemory& memory, bool copies, int ahead) {
  WgmmaRing ring(p, memory, 0);
  for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
    const int m_tile = p.by_n_tiles.divide(tile), n_tile = tile - m_tile * p.plan.n_tiles;
    if (kWgmmaTiles[kTile].shifted() && p.end.residual != nullptr) prefetch_residual<kTile>(p, m_tile, n_tile);
    if (copies) copy_tile<kTile>(p, memory, m_tile, n_tile, ring, ahead);
    __syncwarp();
  }
}

/// Calls work(group, part of the group's tiles, tile's first row, part's first channel) for each part of a tile, in the
/// order in which parts are finished. Called by one thread.
template <int kTile, class Work>
__device__ __forceinline__ void for_each_end(const WgmmaArgs& p, const Work& work) {
  constexpr WgmmaTile kT = kWgmmaTiles[kTile];
  int group = 0, first = 0;
  for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
    const int m_tile = p.by_n_tiles.divide(tile), n_tile = tile - m_tile * p.plan.n_tiles;
    for (int n = 0; n < kT.block_n; n += 64) {
      const int part = n % kT.group_n() / 64;
      work(group, first + part, m_tile * kT.group_m, n_tile * kT.block_n + n);
      if (part + 1 == kT.parts() && ++group == kT.groups) group = 0, first += kT.parts();
    }
  }
}

/// Copies residuals to the buffers where tiles will be finished. Called by one thread.
template <int kTile>
__device__ __forceinline__ void copy_residuals(const WgmmaArgs& p, const WgmmaMemory& memory) {
  prefetch_map(p.residual);
  for_each_end<kTile>(p, [&](int group, int part, int row, int channel) {
    const WgmmaEnd end(p.plan, memory, group, part);
    end.wait_free();
    barrier_arrive_expecting(end.residual_there(), kWgmmaTiles[kTile].end_bytes());
    copy_box(end.rows(), p.residual, channel, row, end.residual_there());
  });
}

/// Stores finished parts, and frees the buffer of each when the next store is under way. Called by one thread.
template <int kTile>
__device__ __forceinline__ void store_tiles(const WgmmaArgs& p, const WgmmaMemory& memory) {
  prefetch_map(p.y);
  int last_group = -1, last_part = 0;
  for_each_end<kTile>(p, [&](int group, int part, int row, int channel) {
    const WgmmaEnd end(p.plan, memory, group, part);
    // A group with one buffer cannot write its next part before that buffer is free, so it is freed before the wait for
    // that part. If groups share a tile, they must not wait for one another's stores either.
    if (p.plan.ends_log == 0 && last_group >= 0 && (kWgmmaTiles[kTile].shared || last_group == group)) {
      store_wait_read<0>();
      WgmmaEnd(p.plan, memory, last_group, last_part).free();
      last_group = -1;
    }
    end.wait_codes();
    store_box(p.y, channel, row, end.rows());
    store_commit();
    if (last_group >= 0) {
      store_wait_read<1>();
      WgmmaEnd(p.plan, memory, last_group, last_part).free();
    }
    last_group = group, last_part = part;
  });
  store_wait_all();
}

}  // namespace octet::kernels
