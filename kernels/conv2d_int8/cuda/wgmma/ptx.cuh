// The PTX instructions of the wgmma convolution (PTX ISA 8.0, sm_90a): mbarriers, copies by the tensor memory
// accelerator, matrix products of a group of four warps. Shared addresses are those of shared_address().
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/conv2d_int8/cuda/ptx.cuh"

namespace octet::kernels {

__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// Makes initialised barriers known to copies.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Arrives, and lets the phase end only after `bytes` more bytes have been copied.
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

/// Copies bytes side by side to shared memory; addresses and size are multiples of 16.
__device__ __forceinline__ void copy_bulk(uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
               "l"(global), "r"(bytes), "r"(barrier)
               : "memory");
}

/// Copies the box at (channel, pixel) of a tensor [pixels, channels].
__device__ __forceinline__ void copy_box(uint32_t shared, const CUtensorMap& map, int channel, int pixel,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
          "r"(shared),
      "l"(&map), "r"(channel), "r"(pixel), "r"(barrier)
      : "memory");
}

/// Copies pixels of a tensor [image, y, x, channels], in the order in which a window moves over it: (channel, x, y,
/// image) is the first window's corner, (tap_x, tap_y) the tap seen from there.
__device__ __forceinline__ void copy_windows(uint32_t shared, const CUtensorMap& map, int channel, int x, int y,
                                             int image, int tap_x, int tap_y, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};" ::"r"(shared),
      "l"(&map), "r"(channel), "r"(x), "r"(y), "r"(image), "r"(barrier), "h"(static_cast<uint16_t>(tap_x)),
      "h"(static_cast<uint16_t>(tap_y))
      : "memory");
}

/// The other way: writes the rows of a box that lie inside the tensor. Of the thread's open group of stores.
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

/// Before a thread says that what it wrote to shared memory may be copied from there.
__device__ __forceinline__ void let_copies_see_writes() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ uint4 load_shared(uint32_t shared) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(shared)
               : "memory");
  return v;
}
/// Words side by side, aligned to their size.
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

/// Reads where it stands, and keeps in no cache level for long.
__device__ __forceinline__ uint4 load_once(const void* from) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

/// Four matrices of 8 rows of 8 pairs of bytes; lanes 8 i to 8 i + 7 give the addresses of the rows of matrix i. Lane l
/// gets pair l / 4 of rows l % 4 * 2 and the next.
__device__ __forceinline__ void load_transposed(uint32_t (&words)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared)
               : "memory");
}
/// The other way.
__device__ __forceinline__ void store_transposed(uint32_t shared, const uint32_t (&words)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(words[0]),
               "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

/// Waits for all four warps of group `group`.
__device__ __forceinline__ void group_wait(int group) { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }

/// What a wgmma is told of rows of `kWidth` bytes in shared memory, swizzled as mma_swizzle() of that width: groups of
/// eight rows follow each other. Add shared addresses divided by 16.
template <int kWidth>
constexpr uint64_t matrix_descriptor() {
  static_assert(kWidth == 128 || kWidth == 64);
  constexpr uint64_t kSwizzle = kWidth == 128 ? 1 : 2, kEightRows = 8 * kWidth / 16;
  return kSwizzle << 62 | kEightRows << 32 | uint64_t{1} << 16;
}

/// The same of weights for the sparse products (wgmma_piece_byte()), whose 16-byte rows lie in no swizzle.
constexpr uint64_t cores_descriptor() {
  constexpr uint64_t kNextInRow = 128 / 16, kEightRows = 256 / 16;
  return kEightRows << 32 | kNextInRow << 16;
}

/// Gives registers of this group of warps back, or takes them: kCount for each thread from now on.
template <int kCount>
__device__ __forceinline__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

/// Before the first wgmma that writes registers which other instructions have used.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Waits until all but the last `kPending` committed groups are done.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

}  // namespace octet::kernels
