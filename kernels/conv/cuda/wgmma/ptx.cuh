// SPDX-License-Identifier: Apache-2.0
// The PTX instructions of the wgmma convolution (PTX ISA 8.0, sm_90a): mbarriers, copies by the tensor memory
// accelerator, matrix products of a group of four warps. Shared addresses are those of shared_address(). Include it in
// .cu files only.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/conv/cuda/ptx.cuh"

namespace octet::kernels {

__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// Makes initialized barriers visible to copies.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Arrives, and delays the end of the phase until `bytes` more bytes have been copied.
__device__ __forceinline__ void barrier_arrive_expecting(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/// Waits until the phase of this parity has ended.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "waiting:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra waiting;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Begins to copy contiguous bytes to shared memory; addresses and size are multiples of 16.
__device__ __forceinline__ void copy_bulk(uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
               "l"(global), "r"(bytes), "r"(barrier)
               : "memory");
}

/// Begins to copy the box at (channel, pixel) of a tensor [pixels, channels].
__device__ __forceinline__ void copy_box(uint32_t shared, const CUtensorMap& map, int channel, int pixel,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
          "r"(shared),
      "l"(&map), "r"(channel), "r"(pixel), "r"(barrier)
      : "memory");
}

/// Begins to copy pixels of a tensor [image, y, x, channels], in the order in which a window moves over it. (channel,
/// x, y, image) is the corner of the first window, (tap_x, tap_y) the offset of the tap from that corner.
__device__ __forceinline__ void copy_windows(uint32_t shared, const CUtensorMap& map, int channel, int x, int y,
                                             int image, int tap_x, int tap_y, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};" ::"r"(shared),
      "l"(&map), "r"(channel), "r"(x), "r"(y), "r"(image), "r"(barrier), "h"(static_cast<uint16_t>(tap_x)),
      "h"(static_cast<uint16_t>(tap_y))
      : "memory");
}

/// Begins to write the rows of a box that lie inside the tensor from shared memory, as part of the thread's open group
/// of stores.
__device__ __forceinline__ void store_box(const CUtensorMap& map, int channel, int pixel, uint32_t shared) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
               "r"(channel), "r"(pixel), "r"(shared)
               : "memory");
}
__device__ __forceinline__ void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/// Waits until all but the thread's last `kPending` groups of stores have read shared memory.
template <int kPending>
__device__ __forceinline__ void store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
/// Waits until all of the thread's stores are done.
__device__ __forceinline__ void store_wait_all() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

/// Makes what a thread wrote to shared memory visible to copies that begin afterwards.
__device__ __forceinline__ void let_copies_see_writes() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ uint4 load_shared(uint32_t shared) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(shared)
               : "memory");
  return v;
}
/// Loads adjacent words, aligned to their total size.
__device__ __forceinline__ void load_shared_words(uint32_t (&words)[1], uint32_t shared) {
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(words[0]) : "r"(shared) : "memory");
}
__device__ __forceinline__ void load_shared_words(uint32_t (&words)[2], uint32_t shared) {
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "r"(shared) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t shared, const uint4& v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

/// Loads 16 bytes of global memory that will not be read again: they are not kept in L1.
__device__ __forceinline__ uint4 load_once(const void* from) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

/// Loads four matrices of 8 rows of 8 pairs of bytes, transposed; lanes 8 i to 8 i + 7 give the addresses of the rows
/// of matrix i. Lane l gets pair l / 4 of rows l % 4 * 2 and the next.
__device__ __forceinline__ void load_transposed(uint32_t (&words)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared)
               : "memory");
}
/// Stores what load_transposed() loads.
__device__ __forceinline__ void store_transposed(uint32_t shared, const uint32_t (&words)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(words[0]),
               "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

/// Waits for all four warps of group `group`.
__device__ __forceinline__ void group_wait(int group) { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }

/// Returns the descriptor by which a wgmma finds rows of `kWidth` bytes in shared memory, swizzled as mma_swizzle() of
/// that width, in adjacent groups of eight rows. Shared addresses divided by 16 are to be added to it.
template <int kWidth>
constexpr uint64_t matrix_descriptor() {
  static_assert(kWidth == 128 || kWidth == 64);
  constexpr uint64_t kSwizzle = kWidth == 128 ? 1 : 2, kEightRows = 8 * kWidth / 16;
  return kSwizzle << 62 | kEightRows << 32 | uint64_t{1} << 16;
}

/// Returns the descriptor of the weights of sparse products (wgmma_piece_byte()), whose 16-byte rows are not swizzled.
constexpr uint64_t cores_descriptor() {
  constexpr uint64_t kNextInRow = 128 / 16, kEightRows = 256 / 16;
  return kEightRows << 32 | kNextInRow << 16;
}

/// Sets the number of registers that each thread of this group of warps has from now on, to fewer or to more.
template <int kCount>
__device__ __forceinline__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

/// Must be called before the first wgmma that writes registers which other instructions have used.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Waits until all but the last `kPending` committed groups are done.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// wgmma.mma_async (and, since PTX ISA 8.2, wgmma.mma_async.sp for weights of which two of four are kept): a group of
// four warps multiplies 64 channels by many pixels in one instruction. The macros spell out the registers of the sums.

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
#define OCTET_WGMMA_192(shape, kept, ...)                                                                       \
  asm volatile(                                                                                                 \
      "{\n"                                                                                                     \
      ".reg .pred add;\n"                                                                                       \
      "setp.ne.b32 add, %98, 0;\n"                                                                              \
      "wgmma.mma_async" shape                                                                                   \
      " "                                                                                                       \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "             \
      "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "              \
      "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "              \
      "%56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, "              \
      "%74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, "              \
      "%92, %93, %94, %95}, %96, %97, " kept                                                                    \
      "add;\n"                                                                                                  \
      "}"                                                                                                       \
      : OCTET_SUMS_4(0), OCTET_SUMS_4(4), OCTET_SUMS_4(8), OCTET_SUMS_4(12), OCTET_SUMS_4(16), OCTET_SUMS_4(20) \
      : "l"(weight), "l"(x), "r"(add)__VA_OPT__(, ) __VA_ARGS__)
#define OCTET_WGMMA(pixels)                                                 \
  if constexpr (kSigned) {                                                  \
    OCTET_WGMMA_##pixels(".sync.aligned.m64n" #pixels "k32.s32.s8.s8", ""); \
  } else {                                                                  \
    OCTET_WGMMA_##pixels(".sync.aligned.m64n" #pixels "k32.s32.s8.u8", ""); \
  }

/// Begins sum = (add ? sum : 0) + weight (64 rows of 32) * x (kRows rows of 32 codes), modulo 2^32, which is complete
/// after the wgmma_wait() that waits for it. sum: kRows / 8 fragments. Must be called by all four warps of a group.
template <bool kSigned, int kRows>
__device__ __forceinline__ void multiply_group(int32_t (*sum)[4], uint64_t weight, uint64_t x, int add) {
  static_assert(kRows == 64 || kRows == 128 || kRows == 192);
  if constexpr (kRows == 64) {
    OCTET_WGMMA(64)
  } else if constexpr (kRows == 128) {
    OCTET_WGMMA(128)
  } else {
    OCTET_WGMMA(192)
  }
}

/// Begins the same with 64 rows of 64 sparse weights, given by the two kept of each four, and 128 rows of 64 codes.
/// kept: which weights are kept in 32 columns of a row (wgmma_kept_thread()).
template <bool kSigned>
__device__ __forceinline__ void multiply_sparse_group(int32_t (*sum)[4], uint64_t weight, uint64_t x, uint32_t kept,
                                                      int add) {
  if constexpr (kSigned) {
    OCTET_WGMMA_128(".sp.sync.aligned.m64n128k64.s32.s8.s8", "%67, 0, ", "r"(kept));
  } else {
    OCTET_WGMMA_128(".sp.sync.aligned.m64n128k64.s32.s8.u8", "%67, 0, ", "r"(kept));
  }
}

#undef OCTET_WGMMA
#undef OCTET_WGMMA_192
#undef OCTET_WGMMA_128
#undef OCTET_WGMMA_64
#undef OCTET_SUMS_4
#undef OCTET_SUMS_1

}  // namespace octet::kernels
