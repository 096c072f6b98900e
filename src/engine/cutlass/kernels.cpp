#include "src/engine/cutlass/kernel.h"

namespace octet {

const std::vector<CutlassKernel>& cutlass_kernels() {
  static const std::vector<CutlassKernel> kKernels = [] {
    std::vector<CutlassKernel> all;
#if OCTET_CUTLASS
    for (const auto kernels : {cutlass_pingpong_gemms, cutlass_cooperative_gemms, cutlass_persistent_convs,
                               cutlass_wide_implicit_gemms, cutlass_narrow_implicit_gemms}) {
      for (CutlassKernel& kernel : kernels()) all.push_back(std::move(kernel));
    }
#endif
    return all;
  }();
  return kKernels;
}

}  // namespace octet
