#include "src/engine/cutlass/gemm.cuh"

namespace octet {

std::vector<CutlassKernel> cutlass_cooperative_gemms() {
  using namespace cutlass_tiles;
  return {gemm_kernel<128, 128, 128, 2, Cooperative>(), gemm_kernel<128, 256, 128, 2, Cooperative>()};
}

}  // namespace octet
