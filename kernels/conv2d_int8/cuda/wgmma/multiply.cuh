// Products of the wgmma convolution: from one instruction to all of a tile. A group of four warps multiplies 64
// channels by all pixels of its tile at once (PTX ISA 8.0 wgmma.mma_async; 8.2 wgmma.mma_async.sp for weights of which
// two of four are kept). Include it in .cu files only.
#pragma once

#include "kernels/conv2d_int8/cuda/fragments.cuh"
#include "kernels/conv2d_int8/cuda/wgmma/ring.cuh"

namespace octet::kernels {

#define OCTET_SUMS_1(i) "+r"(sum[i][0]), "+r"(sum[i][1]), "+r"(sum[i][2]), "+r"(sum[i][3])
#define OCTET_SUMS_4(i) OCTET_SUMS_1(i), OCTET_SUMS_1(i + 1), OCTET_SUMS_1(i + 2), OCTET_SUMS_1(i + 3)
#define OCTET_WGMMA_64(shape, kept, ...)                                                            \
  asm volatile(                                                                                     \
      "{\n"                                                                                         \
      ".reg .pred add;\n"                                                                           \
      "setp.ne.b32 add, %34, 0;\n"                                                                  \
      "wgmma.mma_async" shape                                                                       \
      " "                                                                                           \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
      "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, " kept                \
      "add;\n"                                                                                      \
      "}"                                                                                           \
      : OCTET_SUMS_4(0), OCTET_SUMS_4(4)                                                            \
      : "l"(weight), "l"(x), "r"(add)__VA_OPT__(, ) __VA_ARGS__)
#define OCTET_WGMMA_128(shape, kept, ...)                                                           \
  asm volatile(                                                                                     \
      "{\n"                                                                                         \
      ".reg .pred add;\n"                                                                           \
      "setp.ne.b32 add, %66, 0;\n"                                                                  \
      "wgmma.mma_async" shape                                                                       \
      " "                                                                                           \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
      "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "  \
      "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "  \
      "%56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, " kept                                    \
      "add;\n"                                                                                      \
      "}"                                                                                           \
      : OCTET_SUMS_4(0), OCTET_SUMS_4(4), OCTET_SUMS_4(8), OCTET_SUMS_4(12)                         \
      : "l"(weight), "l"(x), "r"(add)__VA_OPT__(, ) __VA_ARGS__)

/// sum = (add ? sum : 0) + weight (64 rows of 32) * x (kRows rows of 32 codes), modulo 2^32, some time before the
/// wgmma_wait() that waits for it. sum: kRows / 8 fragments. Called by all of a group of four warps.
template <bool kSigned, int kRows>
__device__ __forceinline__ void multiply_group(int32_t (*sum)[4], uint64_t weight, uint64_t x, int add) {
  static_assert(kRows == 64 || kRows == 128);
  if constexpr (kRows == 64 && kSigned) {
    OCTET_WGMMA_64(".sync.aligned.m64n64k32.s32.s8.s8", "");
  } else if constexpr (kRows == 64) {
    OCTET_WGMMA_64(".sync.aligned.m64n64k32.s32.s8.u8", "");
  } else if constexpr (kSigned) {
    OCTET_WGMMA_128(".sync.aligned.m64n128k32.s32.s8.s8", "");
  } else {
    OCTET_WGMMA_128(".sync.aligned.m64n128k32.s32.s8.u8", "");
  }
}

/// The same with 64 rows of 64 weights, of each four the two kept ones, and 128 rows of x of 64 codes. `kept`: which,
/// of 32 columns of a row (wgmma_kept_thread()).
template <bool kSigned>
__device__ __forceinline__ void multiply_sparse_group(int32_t (*sum)[4], uint64_t weight, uint64_t x, uint32_t kept,
                                                      int add) {
  if constexpr (kSigned) {
    OCTET_WGMMA_128(".sp.sync.aligned.m64n128k64.s32.s8.s8", "%67, 0, ", "r"(kept));
  } else {
    OCTET_WGMMA_128(".sp.sync.aligned.m64n128k64.s32.s8.u8", "%67, 0, ", "r"(kept));
  }
}

#undef OCTET_WGMMA_128
#undef OCTET_WGMMA_64
#undef OCTET_SUMS_4
#undef OCTET_SUMS_1

/// [channels / 64][pixels / 8]
template <int kTile>
using WgmmaSums = Fragments<kWgmmaTiles[kTile].block_n / 64, kWgmmaTiles[kTile].group_m / 8>;

/// Begins: sums (+)= a stage's rows, from that of `x` on, times a tap's weights. When it returns, all of this group's
/// earlier products are done.
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

/// Which columns are kept of the sparse weights of three taps, a row of a window. A product reads its word when it
/// begins, not when it is issued: hold() what products in flight use.
template <int kTile>
struct KeptColumns {
  static constexpr int kSlices = kWgmmaTiles[kTile].slices();
  uint32_t word[3][kSlices] = {};

  /// `weight`: the row's first step.
  __device__ __forceinline__ void load(uint32_t weight) {
#pragma unroll
    for (int tap = 0; tap < 3; ++tap) {
      const uint32_t words = weight + tap * kWgmmaTiles[kTile].step_bytes() + kSlices * kWgmmaPieceBytes;
      load_shared_words(word[tap], words + threadIdx.x % 128 * sizeof(word[tap]));
    }
  }
  /// When the products that use the words are done: until here nothing else comes into their registers.
  __device__ __forceinline__ void hold() {
#pragma unroll
    for (int tap = 0; tap < 3; ++tap) {
#pragma unroll
      for (int k = 0; k < kSlices; ++k) asm volatile("" : "+r"(word[tap][k]));
    }
  }
};

/// Begins: sums (+)= a stage's rows times the sparse weights of three taps, a row of a window. `x` is the first tap's,
/// `to_next` from tap to tap (both of descriptors), `weight` the address of the first step.
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

/// Lets the next group begin and waits for the rest of a tile's products: hardly any may be in flight, since those of
/// two groups at once would both end late.
template <int kTile>
__device__ __forceinline__ void end_products(const WgmmaMemory& memory, int group, const WgmmaRing& ring) {
  GroupTurns<kWgmmaTiles[kTile].groups>{memory}.pass(group);
  wgmma_wait<0>();
  ring.release_last();
}

/// All products of a tile.
template <int kTile, bool kSigned>
__device__ __forceinline__ void multiply_chunks(const WgmmaArgs& p, const WgmmaMemory& memory, int group, int round,
                                                WgmmaRing& ring, WgmmaSums<kTile>& sums) {
  constexpr WgmmaTile kT = kWgmmaTiles[kTile];
  constexpr bool kShifted = kT.shifted(), kStreamed = kT.streamed();
  constexpr uint64_t kRows = matrix_descriptor<kT.block_k>();
  uint64_t weight = kRows + (memory.held >> 4);
  int add = 0;
  for (int chunk = 0; chunk < p.plan.chunks; ++chunk) {
    if (!kStreamed && round == 0) barrier_wait(memory.weights_there(chunk), 0);
    for (int load = 0; load < (kShifted ? 1 : p.plan.taps); ++load) {
      ring.wait_full();
      uint64_t x = kRows + (ring.x() >> 4);
      if constexpr (kStreamed) weight = kRows + (ring.weight() >> 4);
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

/// The same with sparse weights and windows of 3 x 3, shifted: three taps at once, so that the next three are waiting
/// when they are done.
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
