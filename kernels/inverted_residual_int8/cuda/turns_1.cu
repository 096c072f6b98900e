#include "kernels/inverted_residual_int8/cuda/turns.cuh"

namespace octet::kernels {

template InvertedLaunch inverted_turns_launch<1>(int, int);

}  // namespace octet::kernels
