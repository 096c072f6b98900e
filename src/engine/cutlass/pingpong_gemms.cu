#include "src/engine/cutlass/gemm.cuh"

namespace octet {

std::vector<CutlassKernel> cutlass_pingpong_gemms() {
  using namespace cutlass_tiles;
  return {gemm_kernel<64, 128, 128, 1, Pingpong>(), gemm_kernel<64, 256, 128, 2, Pingpong>(),
          gemm_kernel<64, 64, 64, 1, Pingpong>()};
}

}  // namespace octet
