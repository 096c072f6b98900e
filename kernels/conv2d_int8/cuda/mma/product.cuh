// What a block of the mma convolution does with its stages of shared memory: its warps read fragments (ldmatrix),
// multiply them (mma.m16n8k32), and add up what they share of a sum. Include it in .cu files only.
#pragma once

#include "kernels/conv2d_int8/cuda/mma/args.cuh"
#include "kernels/conv2d_int8/cuda/ptx.cuh"

namespace octet::kernels {

template <int kTile>
using MmaSums = Fragments<kMmaTiles[kTile].warp_m() / 16, kMmaTiles[kTile].warp_n() / 8>;

/// Where a warp stands in its block.
template <int kTile>
struct MmaWarp {
  static constexpr MmaTile kT = kMmaTiles[kTile];
  int row, column;  ///< of the grid of warps_m x warps_n
  int part;         ///< of the sum: one of warps_k

  __device__ __forceinline__ MmaWarp() {
    const int warp = threadIdx.x / 32;
    row = warp / kT.warps_n % kT.warps_m, column = warp % kT.warps_n, part = warp / (kT.warps_m * kT.warps_n);
  }
};

/// Reads fragments from a stage and multiplies them. A stage holds block_m rows of input, then block_n of weights.
template <int kTile, bool kSigned>
class WarpProduct {
  static constexpr MmaTile kT = kMmaTiles[kTile];
  using Sums = MmaSums<kTile>;
  static constexpr int kWarpM = kT.warp_m(), kWarpN = kT.warp_n();

 public:
  static constexpr int kSteps = kT.block_k / 32 / kT.warps_k;  ///< of a stage, by one warp
  static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0 && kSteps * 32 * kT.warps_k == kT.block_k);
  static_assert(kSteps % 2 == 0, "two sets of fragments take turns");

  __device__ __forceinline__ explicit WarpProduct(const MmaWarp<kTile>& warp) {
    const int lane = threadIdx.x % 32;
    // Of four matrices: input (rows 0-7, rows 8-15) x (bytes 0-15, 16-31); weights (bytes) x (rows).
    const int x_row = warp.row * kWarpM + lane / 8 % 2 * 8 + lane % 8;
    const int w_row = warp.column * kWarpN + lane / 16 * 8 + lane % 8;
    x_row_ = x_row * kT.block_k;
    w_row_ = (kT.block_m + w_row) * kT.block_k;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int chunk = (step * kT.warps_k + warp.part) * 2;
      x_chunk_[step] = mma_swizzle(kT.block_k, lane % 8, chunk + lane / 16) * 16;
      w_chunk_[step] = mma_swizzle(kT.block_k, lane % 8, chunk + lane / 8 % 2) * 16;
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

/// Adds up what the warps of one row and column hold of the sum, through shared memory that nobody reads any more; each
/// of them keeps an equal part of the fragments, which begins at pixel() and channel().
template <int kTile>
struct WarpParts {
  static constexpr MmaTile kT = kMmaTiles[kTile];
  using Sums = MmaSums<kTile>;
  static constexpr int kPartsM = kT.warps_k < Sums::kM ? kT.warps_k : Sums::kM, kPartsN = kT.warps_k / kPartsM;
  using Part = Fragments<Sums::kM / kPartsM, Sums::kN / kPartsN>;
  static_assert(kPartsM * kPartsN == kT.warps_k && Sums::kM % kPartsM == 0 && Sums::kN / 2 % kPartsN == 0);
  static_assert(kT.warps_k == 1 || kT.block_m * kT.block_n * 4 * kT.warps_k <= kT.shared_bytes());

  /// Pixels and channels of a thread from its first of all sums to its first of part `part`.
  __device__ __forceinline__ static int pixel(int part) { return part % kPartsM * Part::kM * 16; }
  __device__ __forceinline__ static int channel(int part) { return part / kPartsM * Part::kN * 2; }

  __device__ __forceinline__ static Part add(const Sums& sums, const MmaWarp<kTile>& warp, uint8_t* shared) {
    if constexpr (kT.warps_k == 1) return sums;
    constexpr int kLanes = 32 * kT.warps_m * kT.warps_n;
    int4* all = reinterpret_cast<int4*>(shared) + threadIdx.x % kLanes;  // [fragment][warps_k][kLanes]
    __syncthreads();
#pragma unroll
    for (int i = 0; i < Sums::kM * Sums::kN; ++i) {
      const int32_t(&v)[4] = sums.value[i / Sums::kN][i % Sums::kN];
      all[(i * kT.warps_k + warp.part) * kLanes] = make_int4(v[0], v[1], v[2], v[3]);
    }
    __syncthreads();
    const int first_m = warp.part % kPartsM * Part::kM, first_n = warp.part / kPartsM * Part::kN;
    Part whole;
#pragma unroll
    for (int i = 0; i < Part::kM * Part::kN; ++i) {
      const int m = i / Part::kN, n = i % Part::kN, fragment = (first_m + m) * Sums::kN + first_n + n;
      int32_t(&sum)[4] = whole.value[m][n];
      sum[0] = sum[1] = sum[2] = sum[3] = 0;
#pragma unroll
      for (int part = 0; part < kT.warps_k; ++part) {
        const int4 v = all[(fragment * kT.warps_k + part) * kLanes];
        sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
      }
    }
    return whole;
  }
};

}  // namespace octet::kernels
