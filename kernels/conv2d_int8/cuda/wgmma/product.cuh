// One instruction of the wgmma convolution: a group of four warps multiplies 64 channels by many pixels at once (PTX
// ISA 8.0 wgmma.mma_async; 8.2 wgmma.mma_async.sp for weights of which two of four are kept). Include it in .cu files
// only.
#pragma once

#include <cstdint>

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

/// sum = (add ? sum : 0) + weight (64 rows of 32) * x (kRows rows of 32 codes), modulo 2^32, some time before the
/// wgmma_wait() that waits for it. sum: kRows / 8 fragments. Called by all of a group of four warps.
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

#undef OCTET_WGMMA
#undef OCTET_WGMMA_192
#undef OCTET_WGMMA_128
#undef OCTET_WGMMA_64
#undef OCTET_SUMS_4
#undef OCTET_SUMS_1

}  // namespace octet::kernels
