#include "src/engine/cutlass/persistent_conv.cuh"

namespace octet {

std::vector<CutlassKernel> cutlass_persistent_convs() {
  using namespace cutlass_tiles;
  return {persistent_conv_kernel<64, 256, 128, 2>(), persistent_conv_kernel<128, 128, 128, 2>(),
          persistent_conv_kernel<64, 128, 128, 2>(), persistent_conv_kernel<128, 64, 64, 1>()};
}

}  // namespace octet
