#include "kernels/conv2d_int8/cuda/mma/kernel.cuh"

namespace octet::kernels {

template MmaLaunch mma_launch<1>(int);

}  // namespace octet::kernels
