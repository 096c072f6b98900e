// SPDX-License-Identifier: Apache-2.0
// int8 convolution as an implicit matrix product on tensor cores: pixels x channels, summed over kernel and input
// channels. Copies run `stages` steps ahead of the products (cp.async). Included by the sources that CMake writes.
#pragma once

#include <utility>

#include "kernels/conv/cuda/mma/load.cuh"
#include "kernels/conv/cuda/mma/product.cuh"
#include "kernels/core/launch.cuh"

namespace octet::kernels {

/// Prefetches the residual into L2 while the block multiplies.
template <int kTile>
__device__ __forceinline__ void prefetch_residual(const MmaArgs& p, int first_pixel, int first_channel) {
  constexpr MmaTile kT = kMmaTiles[kTile];
  constexpr int kSectors = kT.block_n / 32;
  for (int i = threadIdx.x; i < kT.block_m * kSectors; i += kT.threads()) {
    const int pixel = first_pixel + i / kSectors, channel = first_channel + i % kSectors * 32;
    if (pixel < p.out.pixels && channel < p.g.out_c) {
      prefetch_l2(p.out.residual + static_cast<int64_t>(pixel) * p.g.residual_stride + channel);
    }
  }
}

/// Writes complete sums to the output, from the thread's first pixel and channel on. All lanes of a warp call it.
template <class Sums>
__device__ __forceinline__ void store_sums(const MmaArgs& p, const Sums& sums, const OutputOperands<Sums>& operands,
                                           int pixel, int channel) {
  if (p.out.epilogue.float_output) {
    store_floats(p.out, sums, operands, pixel, channel);
  } else if (channel >= p.g.out_c) {
    return;
  } else if (p.out.residual != nullptr) {
    store_codes<true>(p.out, sums, operands, pixel, channel);
  } else {
    store_codes<false>(p.out, sums, operands, pixel, channel);
  }
}

/// Grid: (tiles of the output, parts of the sum). Tiles count channels fastest, so that concurrent blocks share rows of
/// the input.
template <int kTile, bool kSigned>
__global__ void __launch_bounds__(kMmaTiles[kTile].threads(), kMmaTiles[kTile].min_blocks)
    mma_conv2d_kernel(const __grid_constant__ MmaArgs p) {
  constexpr MmaTile kT = kMmaTiles[kTile];
  using Sums = MmaSums<kTile>;
  using Parts = WarpParts<kTile>;
  using Blocks = ClusterSum<kT.threads(), typename Parts::Part>;
  extern __shared__ __align__(128) uint8_t shared_memory[];
  const uint32_t shared = shared_address(shared_memory);

  const int m_tile = p.by_n_tiles.divide(blockIdx.x), n_tile = blockIdx.x - m_tile * p.n_tiles;
  const int first_pixel = m_tile * kT.block_m, part = blockIdx.y;
  const int first_step = part * p.k_per_part + min(part, p.k_extra), steps = p.k_per_part + (part < p.k_extra);

  if (p.in_cluster) Blocks::begin();
  WeightLoader<kTile> weight(p.weight +
                             (static_cast<int64_t>(n_tile) * p.k_tiles + first_step) * (kT.block_n * kT.block_k));
  const auto load_weight = [&](int stage) { weight.load(shared + stage * kT.stage_bytes() + kT.block_m * kT.block_k); };
#pragma unroll
  for (int stage = 0; stage < kT.stages - 1; ++stage) {
    if (stage < steps) load_weight(stage);  // no kernel writes weights
  }
  InputLoader<kTile> input(p, first_pixel, first_step);
  const auto load_input = [&](int stage) { input.load(shared + stage * kT.stage_bytes()); };

  // The first pixel and channel of this thread's sums, and of those that it finishes.
  const MmaWarp<kTile> warp;
  const int lane = threadIdx.x % 32;
  const int channel = n_tile * kT.block_n + warp.column * kT.warp_n() + lane % 4 * (kT.warp_n() / 4);
  const int ended_pixel = first_pixel + warp.row * kT.warp_m() + Parts::pixel(warp.part) + lane / 4;
  const int ended_channel = channel + Parts::channel(warp.part);
  const bool first_part = part == 0 && warp.part == 0, ends = ended_channel < p.g.out_c;
  Sums sums;
#pragma unroll
  for (int n = 0; n < Sums::kN; ++n) {
    const int2 start =
        first_part ? *reinterpret_cast<const int2*>(p.out.constants.init + channel + n * 2) : make_int2(0, 0);
#pragma unroll
    for (int m = 0; m < Sums::kM; ++m) {
      sums.value[m][n][0] = sums.value[m][n][2] = start.x;
      sums.value[m][n][1] = sums.value[m][n][3] = start.y;
    }
  }
  // Constants and residual are loaded while the block multiplies, if there are registers and the block surely finishes.
  constexpr int kEnded = Parts::Part::kM * Parts::Part::kN;
  const bool sure = p.split.parts == 1 || (p.in_cluster && part == 0);
  const bool constants_early = kEnded <= 8 && sure, residual_early = kEnded <= 4 && sure;
  OutputOperands<typename Parts::Part> operands;
  if (constants_early) operands.load_constants(p.out, ended_channel);

  p.beside ? let_next_kernel_begin() : wait_for_previous_kernel();
#pragma unroll
  for (int stage = 0; stage < kT.stages - 1; ++stage) {
    if (stage < steps) load_input(stage);
    copy_async_commit();  // the first commit includes all weights so far
  }
  if (p.out.residual != nullptr) {
    if (residual_early && ends) operands.load_residual(p.out, ended_pixel, ended_channel);
    if (!residual_early) prefetch_residual<kTile>(p, first_pixel, n_tile * kT.block_n);
  }

  const WarpProduct<kTile, kSigned> product(warp);
  // Fragments are read one mma step ahead of the products, also across stages. Behind the last stage, values are read
  // that are never used.
  constexpr int kMmaSteps = WarpProduct<kTile, kSigned>::kSteps;
  typename WarpProduct<kTile, kSigned>::Fragments fragments[2];
  int read_stage = 0, write_stage = kT.stages - 1;
  copy_async_wait<kT.stages - 2>();
  __syncthreads();
  product.read(fragments[0], shared, 0);
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int i = 0; i < kMmaSteps; ++i) {
      if (i == 0) {
        if (step + kT.stages - 1 < steps) {
          load_input(write_stage);
          load_weight(write_stage);
        }
        copy_async_commit();
        write_stage = write_stage + 1 == kT.stages ? 0 : write_stage + 1;
      }
      if (i + 1 == kMmaSteps) {
        copy_async_wait<kT.stages - 2>();
        // Behind the barrier the next step's copies of all threads have arrived, and this step's stage may be
        // overwritten.
        __syncthreads();
        read_stage = read_stage + 1 == kT.stages ? 0 : read_stage + 1;
      }
      product.read(fragments[(i + 1) % 2], shared + read_stage * kT.stage_bytes(), (i + 1) % kMmaSteps);
      product.multiply(sums, fragments[i % 2]);
    }
  }

  typename Parts::Part whole = Parts::add(sums, warp, shared_memory);
  bool last = true;  // whether this is the last of the blocks with parts of this tile
  if (p.in_cluster) {
    last = Blocks::add(whole, part, p.split.parts, shared_memory + kT.shared_bytes());
  } else if (p.split.parts > 1) {
    __shared__ int arrived;
    const auto wait = [] { __syncthreads(); };
    last = add_parts<kT.threads()>(p.split, blockIdx.x, part, whole, threadIdx.x, arrived, wait);
  }
  if (last) {
    if (!constants_early) operands.load_constants(p.out, ended_channel);
    if (!residual_early && ends && p.out.residual != nullptr) operands.load_residual(p.out, ended_pixel, ended_channel);
    store_sums(p, whole, operands, ended_pixel, ended_channel);
  }
  if (p.beside) wait_for_previous_kernel();
}

template <int kTile>
void launch_mma(const MmaArgs& args, unsigned blocks, bool x_signed, CudaStream stream) {
  constexpr MmaTile kT = kMmaTiles[kTile];
  using Blocks = ClusterSum<kT.threads(), typename WarpParts<kTile>::Part>;
  static_assert(Blocks::room_bytes(2) == mma_cluster_bytes(kT, 2));
  const auto kernel = x_signed ? mma_conv2d_kernel<kTile, true> : mma_conv2d_kernel<kTile, false>;
  const unsigned parts = static_cast<unsigned>(args.split.parts);
  const int shared = kT.shared_bytes() + (args.in_cluster ? mma_cluster_bytes(kT, args.split.parts) : 0);
  // Not an operation of the stream, so it is allowed during capture. The value is the same at every launch, because
  // other threads launch too.
  check_launch("mma_conv2d",
               cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMmaSharedBytes));
  launch_overlapped_clusters(kernel, dim3(blocks, parts), dim3(1, args.in_cluster ? parts : 1), kT.threads(), shared,
                             stream, args);
  check_launch("mma_conv2d");
}

template <int kPart, int... kIndex>
MmaLaunch mma_launch_of(int index, std::integer_sequence<int, kIndex...>) {
  static constexpr MmaLaunch kLaunches[] = {launch_mma<kIndex * kMmaPartCount + kPart>...};
  return kLaunches[index];
}

template <int kPart>
MmaLaunch mma_launch(int tile) {
  constexpr int kTiles = (static_cast<int>(kMmaTiles.size()) - kPart + kMmaPartCount - 1) / kMmaPartCount;
  return mma_launch_of<kPart>(tile / kMmaPartCount, std::make_integer_sequence<int, kTiles>());
}

}  // namespace octet::kernels
