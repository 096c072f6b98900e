// SPDX-License-Identifier: Apache-2.0
// Checks a convolution against the contract with the cpu engine, finds out which instruction sets the machine has, and
// picks the path that runs the convolution.

#include "kernels/conv/conv2d.h"

#include <algorithm>
#include <iterator>

#include "kernels/conv/cpu/paths.h"
#include "kernels/operators/lookup.h"
#include "src/base/error.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#define _Bool bool  // the header is of C
#include <sys/platform/x86.h>
#undef _Bool

extern "C" int arch_prctl(int code, unsigned long argument);  // glibc has it, without a header
#endif

namespace octet::kernels {
namespace {

void require(bool ok, const char* what) { require_conv2d(ok, "cpu", what); }

void check(const Conv2dShape& g, const Conv2dParams& p, const Conv2dWeights& w) {
  check_conv2d(g, p, w, "cpu");
  require(!p.x.is_signed && !p.y.is_signed && !p.residual.is_signed,
          "activations are uint8; shift signed edges by +128");
  require(p.x.zero_point >= 0 && p.x.zero_point <= 255, "input zero point outside [0, 255]");
  require(p.y.float_output || (p.y.clamp_min >= 0 && p.y.clamp_max <= 255 && p.y.clamp_min <= p.y.clamp_max),
          "clamp outside [0, 255]");
}

#if defined(__aarch64__)
// Bits of AT_HWCAP and AT_HWCAP2 (Linux, arch/arm64/include/uapi/asm/hwcap.h).
constexpr unsigned long kHasDotProduct = 1ul << 20, kHasInt8MatrixProduct = 1ul << 13;
#elif defined(__x86_64__)
/// Asks Linux once for the permission to use tile registers (Documentation/arch/x86/xstate.rst); without it, and with
/// kernels before 5.16, their instructions are illegal.
bool tiles_permitted() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
  static const bool permitted = ::arch_prctl(kRequestPermission, kTileData) == 0;
  return permitted;
}
#endif

}  // namespace

void look_up_rows(CpuIsa isa, const LookupTable& table, uint8_t* y, int rows, ptrdiff_t stride, int channels) {
  if (stride == channels) return cpu_lookup_u8(isa, table, y, static_cast<long>(rows) * channels, y);
  for (int row = 0; row < rows; ++row, y += stride) cpu_lookup_u8(isa, table, y, channels, y);
}

std::string conv_name(const Conv2dShape& shape, std::initializer_list<std::string_view> parts) {
  std::string name = "conv" + std::to_string(shape.kernel_h);
  name += 'x';
  name += std::to_string(shape.kernel_w);
  for (const std::string_view part : parts) name += part;
  return name;
}

Epilogue make_epilogue(const Conv2dParams& params) {
  Epilogue e;
  e.low = static_cast<float>(params.y.clamp_min - params.y.zero_point);
  e.high = static_cast<float>(params.y.clamp_max - params.y.zero_point);
  e.zero_point = params.y.zero_point;
  e.clamp_min = params.y.clamp_min;
  e.float_output = params.y.float_output;
  e.has_residual = params.has_residual;
  e.residual_zero_point = params.residual.zero_point;
  e.residual_multiplier = params.residual_multiplier;
  return e;
}

std::unique_ptr<CpuConv2d> CpuConv2d::create(const Conv2dShape& shape, const Conv2dParams& params,
                                             const Conv2dWeights& weights, CpuIsa isa) {
  check(shape, params, weights);
  if (!cpu_isa_available(isa)) {
    throw usage_error("this machine cannot run the " + std::string(cpu_isa_name(isa)) +
                      " kernels; the fastest it can is " + std::string(cpu_isa_name(best_cpu_isa())));
  }
  if (isa == CpuIsa::portable) return make_portable_conv2d(shape, params, weights);
  const bool depthwise = shape.groups == shape.in_c && shape.out_c == shape.in_c && shape.in_c > 1;
  if (depthwise && !params.y.float_output) return make_depthwise_conv2d(shape, params, weights, isa);
#if defined(__x86_64__)
  if (isa == CpuIsa::amx) {
    if (amx_fits(shape, params)) return make_amx_conv2d(shape, params, weights);
    return make_gemm_conv2d(shape, params, weights, vector_isa(isa));
  }
#endif
  return make_gemm_conv2d(shape, params, weights, isa);
}

const GemmKernels& gemm_kernels(CpuIsa isa) {
#if defined(__x86_64__)
  if (isa == CpuIsa::avx512_vnni) return avx512_gemm_kernels();
  return isa == CpuIsa::avx_vnni ? avx_vnni_gemm_kernels() : avx2_gemm_kernels();
#elif defined(__aarch64__)
  if (isa == CpuIsa::i8mm) return i8mm_gemm_kernels();
  return isa == CpuIsa::dotprod ? dotprod_gemm_kernels() : neon_gemm_kernels();
#else
  throw usage_error("this processor has no " + std::string(cpu_isa_name(isa)) + " kernels");
#endif
}

const DepthwiseKernels& depthwise_kernels(CpuIsa isa) {
#if defined(__x86_64__)
  if (vector_isa(isa) == CpuIsa::avx512_vnni) return avx512_depthwise_kernels();
  return isa == CpuIsa::avx_vnni ? avx_vnni_depthwise_kernels() : avx2_depthwise_kernels();
#elif defined(__aarch64__)
  return neon_depthwise_kernels();
#else
  throw usage_error("this processor has no " + std::string(cpu_isa_name(isa)) + " kernels");
#endif
}

std::string_view cpu_isa_name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::portable:
      return "portable";
    case CpuIsa::avx2:
      return "avx2";
    case CpuIsa::avx_vnni:
      return "avx_vnni";
    case CpuIsa::avx512_vnni:
      return "avx512_vnni";
    case CpuIsa::amx:
      return "amx";
    case CpuIsa::neon:
      return "neon";
    case CpuIsa::dotprod:
      return "dotprod";
    case CpuIsa::i8mm:
      return "i8mm";
  }
  return "unknown";
}

bool cpu_isa_available(CpuIsa isa) {
  if (isa == CpuIsa::portable) return true;
#if defined(__x86_64__)
  // __builtin_cpu_supports also checks (XGETBV) that the operating system saves the wide registers.
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (isa == CpuIsa::avx2) return avx2;
  if (isa == CpuIsa::avx_vnni) return avx2 && CPU_FEATURE_ACTIVE(AVX_VNNI);
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vnni");
  if (isa == CpuIsa::avx512_vnni) return avx512;
  return isa == CpuIsa::amx && avx512 && __builtin_cpu_supports("avx512vbmi") && CPU_FEATURE_ACTIVE(AMX_TILE) &&
         CPU_FEATURE_ACTIVE(AMX_INT8) && tiles_permitted();
#elif defined(__aarch64__)
  const bool dotprod = (::getauxval(AT_HWCAP) & kHasDotProduct) != 0;
  if (isa == CpuIsa::dotprod) return dotprod;
  if (isa == CpuIsa::i8mm) return dotprod && (::getauxval(AT_HWCAP2) & kHasInt8MatrixProduct) != 0;
  return isa == CpuIsa::neon;
#else
  return false;
#endif
}

std::vector<CpuIsa> available_cpu_isas() {
  std::vector<CpuIsa> isas;
  std::copy_if(std::begin(kCpuIsas), std::end(kCpuIsas), std::back_inserter(isas), cpu_isa_available);
  return isas;
}

CpuIsa best_cpu_isa() { return available_cpu_isas().front(); }

}  // namespace octet::kernels
