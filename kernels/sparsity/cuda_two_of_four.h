// 2:4 sparsity on the GPU, all weights of a network in one launch. The definition is two_of_four.h.
#pragma once

#include "kernels/cuda_stream.h"
#include "kernels/sparsity/two_of_four.h"

namespace octet::kernels {

/// `weights`: `count` of them, in host memory, copied with the launch (one launch for each 56); their pointers on the
/// device. keep_two_of_four() of every group.
void cuda_keep_two_of_four(const SparseWeights* weights, int count, CudaStream stream);

/// decay_pruned() of every group.
void cuda_decay_pruned(const SparseWeights* weights, int count, float rate, CudaStream stream);

}  // namespace octet::kernels
