#include "kernels/conv2d_int8/cuda/mma/kernel.cuh"

namespace octet::kernels {

template void launch_mma<4>(const MmaArgs&, unsigned, bool, CudaStream);
template void launch_mma<5>(const MmaArgs&, unsigned, bool, CudaStream);
template void launch_mma<6>(const MmaArgs&, unsigned, bool, CudaStream);
template void launch_mma<7>(const MmaArgs&, unsigned, bool, CudaStream);

}  // namespace octet::kernels
