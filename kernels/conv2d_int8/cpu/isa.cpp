// Which instruction sets this processor and operating system offer.
#include "kernels/conv2d_int8/cpu_conv2d.h"

namespace octet::kernels {

std::string_view cpu_isa_name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::portable:
      return "portable";
    case CpuIsa::avx2:
      return "avx2";
    case CpuIsa::avx512_vnni:
      return "avx512_vnni";
  }
  return "unknown";
}

bool cpu_isa_available(CpuIsa isa) {
  if (isa == CpuIsa::portable) return true;
#if defined(__x86_64__)
  // __builtin_cpu_supports also asks the operating system (XGETBV) whether it saves the wide registers.
  __builtin_cpu_init();
  if (isa == CpuIsa::avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

CpuIsa best_cpu_isa() {
  if (cpu_isa_available(CpuIsa::avx512_vnni)) return CpuIsa::avx512_vnni;
  if (cpu_isa_available(CpuIsa::avx2)) return CpuIsa::avx2;
  return CpuIsa::portable;
}

}  // namespace octet::kernels
