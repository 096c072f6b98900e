#include "kernels/inverted_residual_int8/cuda/kernel.cuh"

namespace octet::kernels {

template InvertedLaunch inverted_launch<3>(int, int);

}  // namespace octet::kernels
