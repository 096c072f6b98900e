#include "kernels/conv2d_int8/cuda/mma/kernel.cuh"

namespace octet::kernels {

template void launch_mma<8>(const MmaArgs&, unsigned, bool, CudaStream);
template void launch_mma<9>(const MmaArgs&, unsigned, bool, CudaStream);
template void launch_mma<10>(const MmaArgs&, unsigned, bool, CudaStream);
template void launch_mma<11>(const MmaArgs&, unsigned, bool, CudaStream);
template void launch_mma<12>(const MmaArgs&, unsigned, bool, CudaStream);

}  // namespace octet::kernels
