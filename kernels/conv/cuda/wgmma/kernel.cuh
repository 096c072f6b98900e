// SPDX-License-Identifier: Apache-2.0
// int8 convolution as an implicit matrix product by wgmma (Hopper): pixels x channels, summed over input channels and
// taps. One warp copies (tensor memory accelerator, mbarriers); groups of four warps multiply and finish tiles, in turn
// or (WgmmaTile::shared) all on one tile. Blocks iterate over tiles, so that copies run ahead. Included by the sources
// that CMake writes.
#pragma once

#include <utility>

#include "kernels/conv/cuda/wgmma/copy.cuh"
#include "kernels/conv/cuda/wgmma/epilogue.cuh"
#include "kernels/conv/cuda/wgmma/multiply.cuh"
#include "kernels/conv/cuda/wgmma/ring.cuh"
#include "kernels/core/launch.cuh"

namespace octet::kernels {

/// Computes the sums of the group's tile number `round`, or of its channels of that tile. Called by a group of four
/// warps.
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
  // Keeps the compiler from reading a sum before the wait.
#pragma unroll
  for (int m = 0; m < WgmmaSums<kTile>::kM; ++m) {
#pragma unroll
    for (int n = 0; n < WgmmaSums<kTile>::kN; ++n) {
      int32_t(&v)[4] = sums.value[m][n];
      asm volatile("" : "+r"(v[0]), "+r"(v[1]), "+r"(v[2]), "+r"(v[3])::"memory");
    }
  }
}

/// Loads scales and biases of a thread's channels, which no kernel writes.
__device__ __forceinline__ WgmmaConstants constants_of(const WgmmaArgs& p, int channel) {
  const CudaChannelConstants& from = p.end.constants;
  return {__ldg(reinterpret_cast<const float2*>(from.multiplier + channel)),
          __ldg(reinterpret_cast<const float2*>(from.bias + channel))};
}

/// Copies the table of a look-up, or those of the channels of the block's tiles, to shared memory. Called by all
/// threads before they wait for each other. No kernel writes tables.
template <int kTile>
__device__ __forceinline__ void copy_tables(const WgmmaArgs& p, const WgmmaMemory& memory) {
  constexpr WgmmaTile kT = kWgmmaTiles[kTile];
  constexpr int kVectors = kWgmmaTableBytes / 16;
  const uint8_t* from = p.end.lookup.table;
  int vectors = p.end.lookup.wanted() ? kVectors : 0;
  if (p.end.channel_tables != nullptr) {
    const int first = static_cast<int>(blockIdx.x) % p.plan.n_tiles * kT.block_n;
    from = p.end.channel_tables + first * kWgmmaTableBytes;
    vectors = min(kT.block_n, (p.end.out_c + 15) / 16 * 16 - first) * kVectors;
  }
  for (int i = threadIdx.x; i < vectors; i += kT.threads()) {
    store_shared(memory.table + i * 16, __ldg(reinterpret_cast<const uint4*>(from) + i));
  }
}

/// Returns the look-up of the 16 channels that a warp finishes in part `part` of its group's channels.
template <int kTile>
__device__ __forceinline__ SharedLookup lookup_of(const WgmmaArgs& p, const WgmmaMemory& memory, int group, int part) {
  constexpr WgmmaTile kT = kWgmmaTiles[kTile];
  const int channel = (kT.shared ? group * kT.group_n() : 0) + part * 64 + threadIdx.x / 32 % 4 * 16;
  return {memory.table + (p.end.channel_tables != nullptr ? channel * kWgmmaTableBytes : 0)};
}

/// Finishes a tile whose pixels are contiguous: each part is stored as a box.
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
    finish_group(p.end, sums.value[part], constants[part], lookup_of<kTile>(p, memory, group, part), end.rows());
    end.codes_written();
  }
}

/// Multiplies and finishes all tiles of a group. Called by its four warps.
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
      group_wait(group);  // the codes of the previous tile have been stored
      if (p.end.residual != nullptr) {
        rows.put_residual(place);
        group_wait(group);
      }
      finish_group(p.end, sums.value[0], constants[0], lookup_of<kTile>(p, memory, group, 0), place);
      group_wait(group);
      rows.store(place);
    } else {
      multiply_tile<kTile, kSigned>(p, memory, group, round, sums);
      if (p.end.starts.start != nullptr) add_starts(p.end, sums, channel, pixel_of);
      end_tile<kTile>(p, memory, group, round, sums, constants);
    }
  }
}

/// Grid: any number of blocks; if weights or tables of channels stay, a multiple of n_tiles.
template <int kTile, bool kSigned>
__global__ void __launch_bounds__(kWgmmaTiles[kTile].threads(), 1)
    wgmma_conv2d_kernel(const __grid_constant__ WgmmaArgs p) {
  constexpr WgmmaTile kT = kWgmmaTiles[kTile];
  extern __shared__ __align__(kWgmmaAlignment) uint8_t shared_memory[];
  const WgmmaMemory memory(p.plan, shared_address(shared_memory));
  if (threadIdx.x == 0) memory.init_barriers(p.plan, kT);
  copy_tables<kTile>(p, memory);
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
      wait_for_previous_kernel();  // that kernel may still read the previous content of y
      store_tiles<kTile>(p, memory);
    }
  }
}

template <int kTile>
void launch_wgmma(const WgmmaArgs& args, bool x_signed, CudaStream stream) {
  constexpr WgmmaTile kT = kWgmmaTiles[kTile];
  const auto kernel = x_signed ? wgmma_conv2d_kernel<kTile, true> : wgmma_conv2d_kernel<kTile, false>;
  const int shared_bytes = args.plan.shared_bytes();
  // Neither of these calls is an operation of the stream, so they are allowed during capture.
  check_launch("wgmma_conv2d", cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  int blocks = min(static_cast<int>(resident_blocks(kernel, kT.threads(), shared_bytes)), args.tiles);
  if (!kT.streamed() || args.end.channel_tables != nullptr)
    blocks = max(blocks / args.plan.n_tiles, 1) * args.plan.n_tiles;
  launch_overlapped(kernel, static_cast<unsigned>(blocks), kT.threads(), shared_bytes, stream, args);
  check_launch("wgmma_conv2d");
}

template <int kPart, int... kIndex>
WgmmaLaunch wgmma_launch_of(int index, std::integer_sequence<int, kIndex...>) {
  static constexpr WgmmaLaunch kLaunches[] = {launch_wgmma<kIndex * kWgmmaPartCount + kPart>...};
  return kLaunches[index];
}

template <int kPart>
WgmmaLaunch wgmma_launch(int tile) {
  constexpr int kTiles = (static_cast<int>(kWgmmaTiles.size()) - kPart + kWgmmaPartCount - 1) / kWgmmaPartCount;
  return wgmma_launch_of<kPart>(tile / kWgmmaPartCount, std::make_integer_sequence<int, kTiles>());
}

}  // namespace octet::kernels
