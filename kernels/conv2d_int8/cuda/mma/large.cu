#include "kernels/conv2d_int8/cuda/mma/kernel.cuh"

namespace octet::kernels {

template void launch_mma<0>(const MmaArgs&, unsigned, bool, CudaStream);
template void launch_mma<1>(const MmaArgs&, unsigned, bool, CudaStream);
template void launch_mma<2>(const MmaArgs&, unsigned, bool, CudaStream);
template void launch_mma<3>(const MmaArgs&, unsigned, bool, CudaStream);

}  // namespace octet::kernels
