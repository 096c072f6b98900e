#include "src/engine/cutlass/implicit_gemm.cuh"

namespace octet {

std::vector<CutlassKernel> cutlass_wide_implicit_gemms() {
  using namespace cutlass_tiles;
  return {implicit_gemm_kernel<64, 128, 128, 4, 1>(), implicit_gemm_kernel<64, 128, 128, 4, 2>(),
          implicit_gemm_kernel<128, 128, 128, 6, 2>()};
}

}  // namespace octet
