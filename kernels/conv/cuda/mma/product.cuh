// SPDX-License-Identifier: Apache-2.0
// The sums of the mma convolution: the warps of a block read fragments from the stages (ldmatrix) and multiply them
// (mma.m16n8k32). A sum that is split is added up among the warps of a block (WarpParts), the blocks of a cluster
// (ClusterSum), or blocks through device memory (add_parts()). Include it in .cu files only.
#pragma once

#include "kernels/conv/cuda/epilogue.cuh"
#include "kernels/conv/cuda/mma/load.cuh"
#include "kernels/conv/cuda/ptx.cuh"
#include "kernels/core/launch.cuh"

namespace octet::kernels {

template <int kTile>
using MmaSums = Fragments<kMmaTiles[kTile].warp_m() / 16, kMmaTiles[kTile].warp_n() / 8>;

/// The position of a warp in its block.
template <int kTile>
struct MmaWarp {
  static constexpr MmaTile kT = kMmaTiles[kTile];
  int row, column;  ///< in the grid of warps_m x warps_n
  int part;         ///< which of warps_k parts of the sum

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
  static constexpr int kSteps = kT.block_k / 32 / kT.warps_k;  ///< mma steps of a warp per stage
  static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0 && kSteps * 32 * kT.warps_k == kT.block_k);
  static_assert(kSteps % 2 == 0, "two sets of fragments alternate");

  __device__ __forceinline__ explicit WarpProduct(const MmaWarp<kTile>& warp) {
    const int lane = threadIdx.x % 32;
    // Order of the four matrices: input (rows 0-7, rows 8-15) x (bytes 0-15, 16-31); weights (bytes) x (rows).
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

  /// The operands of one mma step of 32 bytes.
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

/// Adds up the parts of the sum that the warps of one row and column hold, through shared memory that nobody reads any
/// more. Each of these warps keeps an equal part of the fragments, which begins at pixel() and channel().
template <int kTile>
struct WarpParts {
  static constexpr MmaTile kT = kMmaTiles[kTile];
  using Sums = MmaSums<kTile>;
  static constexpr int kPartsM = kT.warps_k < Sums::kM ? kT.warps_k : Sums::kM, kPartsN = kT.warps_k / kPartsM;
  using Part = Fragments<Sums::kM / kPartsM, Sums::kN / kPartsN>;
  static_assert(kPartsM * kPartsN == kT.warps_k && Sums::kM % kPartsM == 0 && Sums::kN / 2 % kPartsN == 0);
  static_assert(kT.warps_k == 1 || kT.block_m * kT.block_n * 4 * kT.warps_k <= kT.shared_bytes());

  /// Returns the offset, in pixels or channels, from a thread's first sum to its first sum of part `part`.
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

/// Adds up the parts of a sum that the blocks of one cluster compute, in the shared memory of the first block: without
/// device memory or atomics. Needs compute capability 9.0.
template <int kThreads, class Sums>
class ClusterSum {
  static constexpr int kVectors = Sums::kM * Sums::kN;

 public:
  static constexpr int room_bytes(int parts) { return (parts - 1) * kThreads * kVectors * 16; }

  /// Must be called early by all threads of all blocks: add() waits until every block has begun, because only then may
  /// its memory be written.
  __device__ __forceinline__ static void begin() { arrive_at_cluster(); }

  /// Must be called once by all threads; `part` is the rank of the block. Returns true in the block of part 0, whose
  /// sums are then complete. room: room_bytes(parts) of shared memory that is used for nothing else.
  __device__ __forceinline__ static bool add(Sums& sums, int part, int parts, uint8_t* room) {
    wait_for_cluster();
    int4* mine = reinterpret_cast<int4*>(room) + threadIdx.x;  // [parts - 1][kVectors][kThreads]
    if (part > 0) {
      const uint32_t to = address_in_block(shared_address(mine + (part - 1) * kVectors * kThreads), 0);
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int32_t(&v)[4] = sums.value[i / Sums::kN][i % Sums::kN];
        store_to_cluster(to + i * kThreads * 16, make_int4(v[0], v[1], v[2], v[3]));
      }
    }
    arrive_at_cluster_with_writes();
    if (part > 0) return false;
    wait_for_cluster();
    for (int other = 0; other < parts - 1; ++other) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int4 v = mine[(other * kVectors + i) * kThreads];
        int32_t(&sum)[4] = sums.value[i / Sums::kN][i % Sums::kN];
        sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
      }
    }
    return true;
  }
};

/// Adds up the parts of a tile through device memory. Returns true in the threads of the block that arrived last, whose
/// sums are then complete. Sums of int32 are the same in any order. All kThreads threads that hold the tile's sums call
/// it: `thread` counts them from 0, `arrived` is in shared memory, and wait() waits for all of them.
template <int kThreads, class Sums, class Wait>
__device__ __forceinline__ bool add_parts(const SplitSum& split, int tile, int part, Sums& sums, int thread,
                                          int& arrived, const Wait& wait) {
  constexpr int kVectors = kThreads * Sums::kM * Sums::kN;
  int4* parts = reinterpret_cast<int4*>(split.partial) + static_cast<int64_t>(tile) * split.parts * kVectors + thread;
  int4* mine = parts + static_cast<int64_t>(part) * kVectors;
#pragma unroll
  for (int m = 0; m < Sums::kM; ++m) {
#pragma unroll
    for (int n = 0; n < Sums::kN; ++n) {
      const int32_t(&v)[4] = sums.value[m][n];
      __stcg(mine + (m * Sums::kN + n) * kThreads, make_int4(v[0], v[1], v[2], v[3]));
    }
  }
  __threadfence();
  wait();
  if (thread == 0) {
    arrived = atomicAdd(split.counters + tile, 1);
    if (arrived == split.parts - 1) split.counters[tile] = 0;  // for the next launch
  }
  wait();
  if (arrived != split.parts - 1) return false;
  __threadfence();
  for (int other = 0; other < split.parts; ++other) {
    if (other == part) continue;
    const int4* theirs = parts + static_cast<int64_t>(other) * kVectors;
#pragma unroll
    for (int m = 0; m < Sums::kM; ++m) {
#pragma unroll
      for (int n = 0; n < Sums::kN; ++n) {
        const int4 v = __ldcg(theirs + (m * Sums::kN + n) * kThreads);
        int32_t(&sum)[4] = sums.value[m][n];
        sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
      }
    }
  }
  return true;
}

}  // namespace octet::kernels
