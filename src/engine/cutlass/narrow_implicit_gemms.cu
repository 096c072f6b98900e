#include "src/engine/cutlass/implicit_gemm.cuh"

namespace octet {

std::vector<CutlassKernel> cutlass_narrow_implicit_gemms() {
  using namespace cutlass_tiles;
  return {implicit_gemm_kernel<64, 64, 64, 6, 1>(), implicit_gemm_kernel<128, 64, 64, 5, 1>()};
}

}  // namespace octet
