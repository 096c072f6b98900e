// SPDX-License-Identifier: Apache-2.0
// The products of the wgmma convolution, from those of one tap to those of a whole tile. Include it in .cu files only.
#pragma once

#include "kernels/conv/cuda/epilogue.cuh"
#include "kernels/conv/cuda/wgmma/ptx.cuh"
#include "kernels/conv/cuda/wgmma/ring.cuh"

namespace octet::kernels {

/// The sums of a group: [channels / 64][pixels / 8].
template <int kTile>
using WgmmaSums = Fragments<kWgmmaTiles[kTile].parts(), kWgmmaTiles[kTile].group_m / 8>;

/// Begins to compute sums (+)= rows of a stage, from descriptor `x` on, times the weights of a tap. When it returns,
/// all earlier products of this group are complete.
template <int kTile, bool kSigned>
__device__ __forceinline__ void multiply_tap(WgmmaSums<kTile>& sums, uint64_t x, uint64_t weight, int add) {
  constexpr WgmmaTile kT = kWgmmaTiles[kTile];
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kT.block_k / 32; ++k) {
#pragma unroll
    for (int m = 0; m < WgmmaSums<kTile>::kM; ++m) {
      multiply_group<kSigned, kT.group_m>(sums.value[m], weight + (m * 64 * kT.block_k + k * 32) / 16, x + k * 32 / 16,
                                          add | (k > 0));
    }
  }
  wgmma_commit();
  wgmma_wait<1>();
}

/// Which columns of the sparse weights of three taps, one row of a window, are kept. A product reads its word when it
/// begins, not when it is issued, so hold() must keep the words of products in flight.
template <int kTile>
struct KeptColumns {
  static constexpr int kSlices = kWgmmaTiles[kTile].slices();
  uint32_t word[3][kSlices] = {};

  /// Loads the words; `weight` is the address of the row's first step.
  __device__ __forceinline__ void load(uint32_t weight) {
#pragma unroll
    for (int tap = 0; tap < 3; ++tap) {
      const uint32_t words = weight + tap * kWgmmaTiles[kTile].step_bytes() + kSlices * kWgmmaPieceBytes;
      load_shared_words(word[tap], words + threadIdx.x % 128 * sizeof(word[tap]));
    }
  }
  /// Must be called when the products that use the words are complete; until then the registers are not reused.
  __device__ __forceinline__ void hold() {
#pragma unroll
    for (int tap = 0; tap < 3; ++tap) {
#pragma unroll
      for (int k = 0; k < kSlices; ++k) asm volatile("" : "+r"(word[tap][k]));
    }
  }
};

/// Begins to compute sums (+)= rows of a stage times the sparse weights of three taps, one row of a window. x:
/// descriptor of the first tap; to_next: step from tap to tap in descriptors; weight: address of the first step.
template <int kTile, bool kSigned>
__device__ __forceinline__ void multiply_sparse_row(WgmmaSums<kTile>& sums, uint64_t x, int to_next, uint32_t weight,
                                                    const KeptColumns<kTile>& kept, int add) {
  constexpr WgmmaTile kT = kWgmmaTiles[kTile];
  static_assert(kT.group_m == 128 && kT.block_n == 64);
  const uint64_t pieces = cores_descriptor() + (weight >> 4);
  wgmma_fence();
#pragma unroll
  for (int tap = 0; tap < 3; ++tap) {
#pragma unroll
    for (int k = 0; k < kT.slices(); ++k) {
      multiply_sparse_group<kSigned>(sums.value[0], pieces + (tap * kT.step_bytes() + k * kWgmmaPieceBytes) / 16,
                                     x + tap * to_next + k * kWgmmaSlice / 16, kept.word[tap][k], add | (tap + k > 0));
    }
  }
  wgmma_commit();
}

/// Lets the next group begin and waits for the rest of a tile's products. Few should be in flight by then, since
/// products of two groups at once would delay both.
template <int kTile>
__device__ __forceinline__ void end_products(const WgmmaMemory& memory, int group, const WgmmaRing& ring) {
  constexpr WgmmaTile kT = kWgmmaTiles[kTile];
  if constexpr (!kT.shared) GroupTurns<kT.groups>{memory}.pass(group);
  wgmma_wait<0>();
  ring.release_last();
}

/// Computes all products of a group's tile, or of its share of one.
template <int kTile, bool kSigned>
__device__ __forceinline__ void multiply_chunks(const WgmmaArgs& p, const WgmmaMemory& memory, int group, int round,
                                                WgmmaRing& ring, WgmmaSums<kTile>& sums) {
  constexpr WgmmaTile kT = kWgmmaTiles[kTile];
  constexpr bool kShifted = kT.shifted(), kStreamed = kT.streamed();
  constexpr uint64_t kRows = matrix_descriptor<kT.block_k>();
  const uint64_t own = kRows + (kT.shared ? group * (kT.group_n() * kT.block_k / 16) : 0);  // the group's channels
  uint64_t weight = own + (memory.held >> 4);
  int add = 0;
  for (int chunk = 0; chunk < p.plan.chunks; ++chunk) {
    if (!kStreamed && round == 0) barrier_wait(memory.weights_there(chunk), 0);
    for (int load = 0; load < (kShifted ? 1 : p.plan.taps); ++load) {
      ring.wait_full();
      uint64_t x = kRows + (ring.x() >> 4);
      if constexpr (kStreamed) weight = own + (ring.weight() >> 4);
      multiply_tap<kTile, kSigned>(sums, x, weight, add);
      if (add != 0) ring.release_last();
      weight += kT.step_bytes() / 16, add = 1;
      if constexpr (kShifted) {
        for (int tap = 1, column = 0; tap < p.plan.taps; ++tap) {
          const bool row_ends = ++column == p.g.kernel_w;
          x += row_ends ? p.to_next_row : p.to_next_column;
          column = row_ends ? 0 : column;
          multiply_tap<kTile, kSigned>(sums, x, weight, 1);
          weight += kT.step_bytes() / 16;
        }
      }
      ring.next();
    }
  }
  end_products<kTile>(memory, group, ring);
}

/// Computes all products of a group's tile with sparse weights and shifted windows of 3 x 3. Three taps are issued at
/// once, so that the next three are waiting when they complete.
template <int kTile, bool kSigned>
__device__ __forceinline__ void multiply_sparse_chunks(const WgmmaArgs& p, const WgmmaMemory& memory, int group,
                                                       int round, WgmmaRing& ring, WgmmaSums<kTile>& sums) {
  constexpr uint64_t kRows = matrix_descriptor<kWgmmaTiles[kTile].block_k>();
  constexpr int kRowBytes = 3 * kWgmmaTiles[kTile].step_bytes();
  uint32_t weight = memory.held;
  KeptColumns<kTile> kept[3];
  int add = 0;
  if (round == 0) barrier_wait(memory.weights_there(0), 0);
  kept[0].load(weight);
  for (int chunk = 0; chunk < p.plan.chunks; ++chunk) {
    ring.wait_full();
    uint64_t x = kRows + (ring.x() >> 4);
#pragma unroll
    for (int row = 0; row < 3; ++row) {
      const bool more = row < 2 || chunk + 1 < p.plan.chunks;
      if (row == 2 && more && round == 0) barrier_wait(memory.weights_there(chunk + 1), 0);
      if (more) kept[(row + 1) % 3].load(weight + kRowBytes);
      multiply_sparse_row<kTile, kSigned>(sums, x, p.to_next_column, weight, kept[row], add);
      wgmma_wait<1>();
      kept[(row + 2) % 3].hold();  // the row before
      if (row == 0 && add != 0) ring.release_last();
      x += 2 * p.to_next_column + p.to_next_row, weight += kRowBytes, add = 1;
    }
    ring.next();
  }
  end_products<kTile>(memory, group, ring);
  kept[2].hold();
}

}  // namespace octet::kernels
