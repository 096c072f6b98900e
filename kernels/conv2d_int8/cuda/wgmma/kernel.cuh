// int8 convolution as an implicit matrix product by wgmma (Hopper): pixels x channels, summed over input channels and
// taps. One warp copies (tensor memory accelerator, mbarriers); groups of four warps multiply and end tiles, in turn or
// (WgmmaTile::shared) all on one tile. Blocks stay and go through tiles, so that copies run ahead. For part_*.cu only.
#pragma once

#include <utility>

#include "kernels/conv2d_int8/cuda/wgmma/epilogue.cuh"
#include "kernels/conv2d_int8/cuda/wgmma/multiply.cuh"
#include "kernels/conv2d_int8/cuda/wgmma/ring.cuh"
#include "kernels/cuda_launch.h"
#include "kernels/cuda_overlap.h"

namespace octet::kernels {

/// The pixel of the output that is row `row` of all tiles' rows; negative: none.
template <int kTile>
__device__ __forceinline__ int output_pixel(const WgmmaArgs& p, int row) {
  if constexpr (!kWgmmaTiles[kTile].shifted()) return row < p.end.pixels ? row : -1;
  const int image = p.by_padded_image.divide(row), in_image = row - image * static_cast<int>(p.by_padded_image.divisor);
  const int y = p.by_padded_row.divide(in_image), x = in_image - y * static_cast<int>(p.by_padded_row.divisor);
  return image < p.images && y < p.g.out_h && x < p.g.out_w ? (image * p.g.out_h + y) * p.g.out_w + x : -1;
}

/// One thread: copies the weights that stay, those of the block's channels.
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

/// What arrives in a stage.
template <int kTile>
__device__ __forceinline__ uint32_t bytes_of_stage(const WgmmaArgs& p) {
  constexpr WgmmaTile kT = kWgmmaTiles[kTile];
  return p.plan.x_rows * kT.block_k + (kT.streamed() ? kT.step_bytes() : 0);
}

/// One thread: copies the weights of the block's first stages, where weights stream. Returns how many stages.
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

/// One thread: copies what a tile needs, each stage as soon as it is free; in the first `ahead` only the input.
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

/// The residual of a tile whose pixels lie apart comes into the L2 cache while earlier tiles are computed. By a warp.
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

/// A warp, whose thread `copies` copies. `ahead`: stages whose weights it has begun to copy.
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

/// A group of four warps: the sums of a tile, or of its channels of one, the group's `round`-th.
template <int kTile, bool kSigned>
__device__ __forceinline__ void multiply_tile(const WgmmaArgs& p, const WgmmaMemory& memory, int group, int round,
                                              WgmmaSums<kTile>& sums) {
  constexpr WgmmaTile kT = kWgmmaTiles[kTile];
  const int tiles_before = kT.shared ? round : kT.groups * round + group;
  WgmmaRing ring(p, memory, tiles_before * p.plan.chunks * (kT.shifted() ? 1 : p.plan.taps));
  if constexpr (!kT.shared) GroupTurns<kT.groups>{memory}.wait(group, round);
  if constexpr (kT.sparse) {
    multiply_sparse_chunks<kTile, kSigned>(p, memory, group, round, ring, sums);
  } else {
    multiply_chunks<kTile, kSigned>(p, memory, group, round, ring, sums);
  }
#pragma unroll
  for (int m = 0; m < WgmmaSums<kTile>::kM; ++m) {
#pragma unroll
    for (int n = 0; n < WgmmaSums<kTile>::kN; ++n) {
      int32_t(&v)[4] = sums.value[m][n];
      asm volatile("" : "+r"(v[0]), "+r"(v[1]), "+r"(v[2]), "+r"(v[3])::"memory");  // none is read before the wait
    }
  }
}

/// Scales and biases of a thread's channels, which no kernel writes.
__device__ __forceinline__ WgmmaConstants constants_of(const WgmmaArgs& p, int channel) {
  const CudaChannelConstants& from = p.end.constants;
  return {__ldg(reinterpret_cast<const float2*>(from.multiplier + channel)),
          __ldg(reinterpret_cast<const float2*>(from.bias + channel))};
}

/// A tile whose pixels follow each other leaves as boxes, part by part.
template <int kTile>
__device__ __forceinline__ void end_tile(const WgmmaArgs& p, const WgmmaMemory& memory, int group, int round,
                                         const WgmmaSums<kTile>& sums, const WgmmaConstants (&constants)[2]) {
  constexpr int kParts = kWgmmaTiles[kTile].parts();
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const WgmmaEnd end(p.plan, memory, group, round * kParts + part);
    if (p.end.residual != nullptr) {
      end.wait_residual();
    } else {
      end.wait_free();
    }
    finish_group(p.end, sums.value[part], constants[part], end.rows());
    end.codes_written();
  }
}

template <int kTile, bool kSigned>
__device__ __forceinline__ void multiply_tiles(const WgmmaArgs& p, const WgmmaMemory& memory, int group) {
  constexpr WgmmaTile kT = kWgmmaTiles[kTile];
  WgmmaSums<kTile> sums;
  const int first = blockIdx.x + (kT.shared ? 0 : group * gridDim.x), step = (kT.shared ? 1 : kT.groups) * gridDim.x;
  for (int tile = first, round = 0; tile < p.tiles; tile += step, ++round) {
    const int m_tile = p.by_n_tiles.divide(tile), n_tile = tile - m_tile * p.plan.n_tiles;
    const int channel = n_tile * kT.block_n + (kT.shared ? group * kT.group_n() : 0) + wgmma_channel();
    const auto pixel_of = [&](int row) { return output_pixel<kTile>(p, m_tile * kT.group_m + row); };
    WgmmaConstants constants[2];
#pragma unroll
    for (int part = 0; part < kT.parts(); ++part) constants[part] = constants_of(p, channel + part * 64);
    if constexpr (kT.shifted()) {
      static_assert(kT.parts() == 1);
      ScatteredRows<kT.group_m> rows(p.end, n_tile * kT.block_n, pixel_of);
      if (p.end.residual != nullptr) rows.load_residual();
      multiply_tile<kTile, kSigned>(p, memory, group, round, sums);
      if (p.end.starts.start != nullptr) add_starts(p.end, sums, channel, pixel_of);
      const uint32_t place = memory.ends + group * p.plan.end_bytes;
      group_wait(group);  // all codes of the tile before are on their way
      if (p.end.residual != nullptr) {
        rows.put_residual(place);
        group_wait(group);
      }
      finish_group(p.end, sums.value[0], constants[0], place);
      group_wait(group);
      rows.store(place);
    } else {
      multiply_tile<kTile, kSigned>(p, memory, group, round, sums);
      if (p.end.starts.start != nullptr) add_starts(p.end, sums, channel, pixel_of);
      end_tile<kTile>(p, memory, group, round, sums, constants);
    }
  }
}

/// One thread: calls work(tile, group, part of the group's tiles, tile's first row, part's first channel) for each part
/// of a tile, in the order in which tiles end.
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

/// One thread: copies residuals to where tiles will end.
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

/// One thread: writes what has ended to memory, and frees its place when the next store is under way.
template <int kTile>
__device__ __forceinline__ void store_tiles(const WgmmaArgs& p, const WgmmaMemory& memory) {
  prefetch_map(p.y);
  int last_group = -1, last_part = 0;
  for_each_end<kTile>(p, [&](int group, int part, int row, int channel) {
    const WgmmaEnd end(p.plan, memory, group, part);
    // A group with one place waits for it before it writes the next part, and where a tile is shared not for the
    // others.
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

/// Grid: when weights stay, a multiple of the tiles of channels.
template <int kTile, bool kSigned>
__global__ void __launch_bounds__(kWgmmaTiles[kTile].threads(), 1)
    wgmma_conv2d_kernel(const __grid_constant__ WgmmaArgs p) {
  constexpr WgmmaTile kT = kWgmmaTiles[kTile];
  extern __shared__ uint8_t shared_memory[];
  const WgmmaMemory memory(p.plan, shared_address(shared_memory));
  if (threadIdx.x == 0) memory.init_barriers(p.plan, kT);
  __syncthreads();
  const int group = threadIdx.x / 128;
  if (group < kT.groups) {
    grow_registers<kT.registers()>();
    wait_for_previous_kernel();
    multiply_tiles<kTile, kSigned>(p, memory, group);
  } else {
    shrink_registers<kT.copier_registers()>();
    const int warp = threadIdx.x % 128 / 32;
    const bool first = threadIdx.x % 32 == 0;
    if (warp == 0) {
      if (first) prefetch_map(p.x);
      int ahead = 0;
      if (first) {  // no kernel writes weights
        if constexpr (kT.streamed()) {
          ahead = copy_weights_ahead<kTile>(p, memory);
        } else {
          copy_held<kTile>(p, memory);
        }
      }
      wait_for_previous_kernel();
      copy_tiles<kTile>(p, memory, first, ahead);
    } else if (!kT.shifted() && warp == 1 && first && p.end.residual != nullptr) {
      wait_for_previous_kernel();
      copy_residuals<kTile>(p, memory);
    } else if (!kT.shifted() && warp == 2 && first) {
      wait_for_previous_kernel();  // which may still read what y was
      store_tiles<kTile>(p, memory);
    }
  }
}

template <int kTile>
void launch_wgmma(const WgmmaArgs& args, bool x_signed, CudaStream stream) {
  constexpr WgmmaTile kT = kWgmmaTiles[kTile];
  const auto kernel = x_signed ? wgmma_conv2d_kernel<kTile, true> : wgmma_conv2d_kernel<kTile, false>;
  const int shared_bytes = args.plan.shared_bytes();
  // Neither is an operation of the stream: allowed while it is captured.
  check_launch("wgmma_conv2d", cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  int blocks = min(static_cast<int>(resident_blocks(kernel, kT.threads(), shared_bytes)), args.tiles);
  if (!kT.streamed()) blocks = max(blocks / args.plan.n_tiles, 1) * args.plan.n_tiles;
  launch_overlapped(kernel, static_cast<unsigned>(blocks), kT.threads(), shared_bytes, stream, args);
  check_launch("wgmma_conv2d");
}

template <int kPart, int... kIndex>
WgmmaLaunch wgmma_launch_of(int index, std::integer_sequence<int, kIndex...>) {
  static constexpr WgmmaLaunch kLaunches[] = {launch_wgmma<kIndex * kWgmmaParts + kPart>...};
  return kLaunches[index];
}

template <int kPart>
WgmmaLaunch wgmma_launch(int tile) {
  constexpr int kTiles = (static_cast<int>(kWgmmaTiles.size()) - kPart + kWgmmaParts - 1) / kWgmmaParts;
  return wgmma_launch_of<kPart>(tile / kWgmmaParts, std::make_integer_sequence<int, kTiles>());
}

}  // namespace octet::kernels
