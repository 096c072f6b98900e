#include "kernels/conv2d_int8/cuda/wgmma/kernel.cuh"

namespace octet::kernels {

template WgmmaLaunch wgmma_launch<2>(int);

}  // namespace octet::kernels
