// int8 convolution as an implicit matrix product on tensor cores: pixels x channels, summed over kernel and input
// channels. Copies run `stages` steps ahead of the products (cp.async); ldmatrix feeds mma.m16n8k32. Included by the
// files that instantiate tiles.
#pragma once

#include <utility>

#include "kernels/conv2d_int8/cuda/mma/load.cuh"
#include "kernels/cuda_launch.h"
#include "kernels/cuda_overlap.h"

namespace octet::kernels {

template <int kTile>
using MmaSums = Fragments<kMmaTiles[kTile].warp_m() / 16, kMmaTiles[kTile].warp_n() / 8>;

/// Reads fragments from a stage and multiplies them. A stage holds block_m rows of input, then block_n of weights.
template <int kTile, bool kSigned>
class WarpProduct {
  static constexpr MmaTile kT = kMmaTiles[kTile];
  using Sums = MmaSums<kTile>;
  static constexpr int kSteps = kT.block_k / 32, kWarpM = kT.warp_m(), kWarpN = kT.warp_n();
  static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0);

 public:
  __device__ __forceinline__ WarpProduct(int warp_row, int warp_column, int lane) {
    // Of four matrices: input (rows 0-7, rows 8-15) x (bytes 0-15, 16-31); weights (bytes) x (rows).
    const int x_row = warp_row * kWarpM + lane / 8 % 2 * 8 + lane % 8;
    const int w_row = warp_column * kWarpN + lane / 16 * 8 + lane % 8;
    x_row_ = x_row * kT.block_k;
    w_row_ = (kT.block_m + w_row) * kT.block_k;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      x_chunk_[step] = mma_swizzle(kT.block_k, lane % 8, step * 2 + lane / 16) * 16;
      w_chunk_[step] = mma_swizzle(kT.block_k, lane % 8, step * 2 + lane / 8 % 2) * 16;
    }
  }

  /// What one mma step of 32 bytes multiplies.
  struct Fragments {
    uint32_t x[Sums::kM][4], w[Sums::kN / 2][4];
  };

  __device__ __forceinline__ void read(Fragments& f, uint32_t stage, int step) const {
#pragma unroll
    for (int m = 0; m < Sums::kM; ++m) {
      load_matrices(f.x[m], stage + x_row_ + x_chunk_[step] + m * 16 * kT.block_k);
    }
#pragma unroll
    for (int n = 0; n < Sums::kN / 2; ++n) {
      load_matrices(f.w[n], stage + w_row_ + w_chunk_[step] + n * 16 * kT.block_k);
    }
  }

  __device__ __forceinline__ void multiply(Sums& sums, const Fragments& f) const {
#pragma unroll
    for (int m = 0; m < Sums::kM; ++m) {
#pragma unroll
      for (int n = 0; n < Sums::kN; ++n) {
        multiply_add<kSigned>(sums.value[m][n], f.x[m], f.w[n / 2][n % 2 * 2], f.w[n / 2][n % 2 * 2 + 1]);
      }
    }
  }

 private:
  uint32_t x_row_, w_row_, x_chunk_[kSteps], w_chunk_[kSteps];  ///< bytes
};

/// The residual comes into L2 while the block multiplies.
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

/// Grid: (tiles of the output, channels fastest, so that blocks at work share rows of the input; parts of the sum).
template <int kTile, bool kSigned>
__global__ void __launch_bounds__(kMmaTiles[kTile].threads(), kMmaTiles[kTile].min_blocks)
    mma_conv2d_kernel(const __grid_constant__ MmaArgs p) {
  constexpr MmaTile kT = kMmaTiles[kTile];
  using Sums = MmaSums<kTile>;
  extern __shared__ __align__(128) uint8_t shared_memory[];
  const uint32_t shared = shared_address(shared_memory);

  const int m_tile = p.by_n_tiles.divide(blockIdx.x), n_tile = blockIdx.x - m_tile * p.n_tiles;
  const int first_pixel = m_tile * kT.block_m, part = blockIdx.y;
  const int first_step = part * p.k_per_part + min(part, p.k_extra), steps = p.k_per_part + (part < p.k_extra);

  InputLoader<kTile> input(p, first_pixel, first_step);
  WeightLoader<kTile> weight(p.weight +
                             (static_cast<int64_t>(n_tile) * p.k_tiles + first_step) * (kT.block_n * kT.block_k));
  const auto load_input = [&](int stage) { input.load(shared + stage * kT.stage_bytes()); };
  const auto load_weight = [&](int stage) { weight.load(shared + stage * kT.stage_bytes() + kT.block_m * kT.block_k); };
#pragma unroll
  for (int stage = 0; stage < kT.stages - 1; ++stage) {
    if (stage < steps) load_weight(stage);  // no kernel writes weights
  }
  wait_for_previous_kernel();
#pragma unroll
  for (int stage = 0; stage < kT.stages - 1; ++stage) {
    if (stage < steps) load_input(stage);
    copy_async_commit();  // with the first: all weights so far
  }
  if (p.out.residual != nullptr) prefetch_residual<kTile>(p, first_pixel, n_tile * kT.block_n);

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_row = warp / kT.warps_n, warp_column = warp % kT.warps_n;
  const int channel = n_tile * kT.block_n + warp_column * kT.warp_n() + lane % 4 * (kT.warp_n() / 4);
  Sums sums;
#pragma unroll
  for (int n = 0; n < Sums::kN; ++n) {
    const int2 start =
        part == 0 ? *reinterpret_cast<const int2*>(p.out.constants.init + channel + n * 2) : make_int2(0, 0);
#pragma unroll
    for (int m = 0; m < Sums::kM; ++m) {
      sums.value[m][n][0] = sums.value[m][n][2] = start.x;
      sums.value[m][n][1] = sums.value[m][n][3] = start.y;
    }
  }

  const WarpProduct<kTile, kSigned> product(warp_row, warp_column, lane);
  // Fragments are read one mma step ahead of the products, also across stages: behind the last stage that reads what is
  // never used.
  constexpr int kMmaSteps = kT.block_k / 32;
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
        __syncthreads();  // the next step's copies of all threads are there, and this step's stage may be written
        read_stage = read_stage + 1 == kT.stages ? 0 : read_stage + 1;
      }
      product.read(fragments[(i + 1) % 2], shared + read_stage * kT.stage_bytes(), (i + 1) % kMmaSteps);
      product.multiply(sums, fragments[i % 2]);
    }
  }

  if (p.split.parts > 1) {
    __shared__ int arrived;
    const auto wait = [] { __syncthreads(); };
    if (!add_parts<kT.threads()>(p.split, blockIdx.x, part, sums, threadIdx.x, arrived, wait)) return;
  }
  if (channel >= p.g.out_c) return;
  const int thread_pixel = first_pixel + warp_row * kT.warp_m() + lane / 4;
  if (p.out.epilogue.float_output) {
    store_floats(p.out, sums, thread_pixel, channel);
  } else if (p.out.residual != nullptr) {
    store_codes<true>(p.out, sums, thread_pixel, channel);
  } else {
    store_codes<false>(p.out, sums, thread_pixel, channel);
  }
}

template <int kTile>
void launch_mma(const MmaArgs& args, unsigned blocks, bool x_signed, CudaStream stream) {
  constexpr MmaTile kT = kMmaTiles[kTile];
  const auto kernel = x_signed ? mma_conv2d_kernel<kTile, true> : mma_conv2d_kernel<kTile, false>;
  // Not an operation of the stream: allowed while it is captured.
  check_launch("mma_conv2d",
               cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kT.shared_bytes()));
  const dim3 grid(blocks, static_cast<unsigned>(args.split.parts));
  launch_overlapped(kernel, grid, kT.threads(), kT.shared_bytes(), stream, args);
  check_launch("mma_conv2d");
}

template <int kPart, int... kIndex>
MmaLaunch mma_launch_of(int index, std::integer_sequence<int, kIndex...>) {
  static constexpr MmaLaunch kLaunches[] = {launch_mma<kIndex * kMmaParts + kPart>...};
  return kLaunches[index];
}

template <int kPart>
MmaLaunch mma_launch(int tile) {
  constexpr int kTiles = (static_cast<int>(kMmaTiles.size()) - kPart + kMmaParts - 1) / kMmaParts;
  return mma_launch_of<kPart>(tile / kMmaParts, std::make_integer_sequence<int, kTiles>());
}

}  // namespace octet::kernels
