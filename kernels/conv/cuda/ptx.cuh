// SPDX-License-Identifier: Apache-2.0
// PTX instructions of the kernels on tensor cores (PTX ISA 8.x: cp.async, ldmatrix, mma.m16n8k32; all since sm_80).
// Include it in .cu files only.
#pragma once

#include <cstdint>

namespace octet::kernels {

/// Returns the address in shared memory that PTX instructions take.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Begins to copy 16 bytes from global to shared memory; both addresses are multiples of 16.
__device__ __forceinline__ void copy_async(uint32_t shared, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}

__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until all but the last `kPending` committed groups of this thread's copies have arrived.
template <int kPending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Calls copy_async() if `inside`, else writes `word` four times; by predicates, without a branch.
__device__ __forceinline__ void copy_async_or_fill(uint32_t shared, const void* global, bool inside, uint32_t word) {
  asm volatile(
      "{\n"
      ".reg .pred inside;\n"
      "setp.ne.b32 inside, %2, 0;\n"
      "@inside cp.async.cg.shared.global.L2::128B [%0], [%1], 16;\n"
      "@!inside st.shared.v4.b32 [%0], {%3, %3, %3, %3};\n"
      "}" ::"r"(shared),
      "l"(global), "r"(static_cast<int>(inside)), "r"(word)
      : "memory");
}

/// Copies four bytes through the L1 cache if `inside`, else writes `word`.
__device__ __forceinline__ void copy_word_or_fill(uint32_t shared, const void* global, bool inside, uint32_t word) {
  asm volatile(
      "{\n"
      ".reg .pred inside;\n"
      "setp.ne.b32 inside, %2, 0;\n"
      "@inside cp.async.ca.shared.global [%0], [%1], 4;\n"
      "@!inside st.shared.b32 [%0], %3;\n"
      "}" ::"r"(shared),
      "l"(global), "r"(static_cast<int>(inside)), "r"(word)
      : "memory");
}

/// Loads four matrices of 8 rows of 16 bytes; lanes 8 i to 8 i + 7 give the addresses of the rows of matrix i. Lane l
/// gets bytes 4 (l % 4) to 4 (l % 4) + 3 of row l / 4 of each.
__device__ __forceinline__ void load_matrices(uint32_t (&d)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(shared)
               : "memory");
}

/// Computes sum += a (16 x 32 codes) * b (32 x 8 weights), modulo 2^32.
template <bool kSigned>
__device__ __forceinline__ void multiply_add(int32_t (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (kSigned) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

/// Computes sum = start + a * b, modulo 2^32. `start` is four registers although both rows start from the same values:
/// given two, the compiler would copy them to four before every product.
template <bool kSigned = false>
__device__ __forceinline__ void multiply_from(int32_t (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                              const int4& start) {
  if constexpr (kSigned) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, "
        "%13};"
        : "=r"(sum[0]), "=r"(sum[1]), "=r"(sum[2]), "=r"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(start.x), "r"(start.y), "r"(start.z),
          "r"(start.w));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, "
        "%13};"
        : "=r"(sum[0]), "=r"(sum[1]), "=r"(sum[2]), "=r"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(start.x), "r"(start.y), "r"(start.z),
          "r"(start.w));
  }
}

/// Computes sum += a (16 x 16 codes) * b (16 x 8 weights), half the operand of multiply_add().
template <bool kSigned>
__device__ __forceinline__ void multiply_add_half(int32_t (&sum)[4], const uint32_t (&a)[2], uint32_t b) {
  if constexpr (kSigned) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b));
  } else {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b));
  }
}

__device__ __forceinline__ void prefetch_l2(const void* global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}

}  // namespace octet::kernels
