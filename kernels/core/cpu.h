// SPDX-License-Identifier: Apache-2.0
// The instruction sets of CPUs, and one plain loop compiled once for each of them: every path runs the same source, so
// all give the same bytes.
#pragma once

#include <string_view>
#include <vector>

namespace octet::kernels {

/// Instruction sets. avx_vnni is AVX2 with vpdpbusd, avx512_vnni means AVX-512 F, BW, VL, DQ and VNNI, amx adds tiles
/// and TDPBUSD; neon is what every aarch64 processor has, dotprod (ARMv8.2) adds SDOT, i8mm (ARMv8.6) USMMLA.
enum class CpuIsa { portable, avx2, avx_vnni, avx512_vnni, amx, neon, dotprod, i8mm };

/// The paths of this build, from the fastest to the slowest.
#if defined(__x86_64__)
inline constexpr CpuIsa kCpuIsas[] = {CpuIsa::amx, CpuIsa::avx512_vnni, CpuIsa::avx_vnni, CpuIsa::avx2,
                                      CpuIsa::portable};
#elif defined(__aarch64__)
inline constexpr CpuIsa kCpuIsas[] = {CpuIsa::i8mm, CpuIsa::dotprod, CpuIsa::neon, CpuIsa::portable};
#else
inline constexpr CpuIsa kCpuIsas[] = {CpuIsa::portable};
#endif

/// Returns the instruction set that a path uses for all but convolutions: AMX and AVX-VNNI have no more for these.
constexpr CpuIsa vector_isa(CpuIsa isa) {
  return isa == CpuIsa::amx ? CpuIsa::avx512_vnni : isa == CpuIsa::avx_vnni ? CpuIsa::avx2 : isa;
}

std::string_view cpu_isa_name(CpuIsa isa);  ///< the name in CompileOptions::kernels, such as "avx512_vnni"
bool cpu_isa_available(CpuIsa isa);         ///< whether this processor and operating system can run it
std::vector<CpuIsa> available_cpu_isas();   ///< those of kCpuIsas that are available, in that order
CpuIsa best_cpu_isa();                      ///< the fastest available instruction set

#if defined(__x86_64__)
template <auto kLoop, class... Arguments>
[[gnu::target("avx512f,avx512bw,avx512vl,avx512dq,fma,prefer-vector-width=512")]] void run_avx512(
    const Arguments&... arguments) {
  kLoop(arguments...);
}
template <auto kLoop, class... Arguments>
[[gnu::target("avx2,fma")]] void run_avx2(const Arguments&... arguments) {
  kLoop(arguments...);
}
#endif

/// Calls kLoop(arguments...), compiled for `isa`. kLoop is an always_inline function, vectorised inside callers with a
/// target attribute. Elsewhere than on x86-64 it uses what the compiler assumes anyway: on aarch64 NEON and fused
/// multiply-add.
template <auto kLoop, class... Arguments>
void run_on(CpuIsa isa, const Arguments&... arguments) {
#if defined(__x86_64__)
  if (vector_isa(isa) == CpuIsa::avx512_vnni) return run_avx512<kLoop>(arguments...);
  if (vector_isa(isa) == CpuIsa::avx2) return run_avx2<kLoop>(arguments...);
#endif
  kLoop(arguments...);
}

}  // namespace octet::kernels

// OCTET_CLONES before a function makes the compiler emit one copy for each instruction set; the loader picks the best
// one that the machine has. It is for plain loops whose results do not depend on the width of vectors. OCTET_FMA_CLONES
// also allows fma instructions, for loops that call fmaf: fmaf and rint round once, by definition, in every copy.
// Sanitized builds have one portable copy, because the loader picks before a sanitizer is ready.
#if defined(__x86_64__) && defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__clang__)
#define OCTET_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#define OCTET_FMA_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define OCTET_CLONES
#define OCTET_FMA_CLONES
#endif
