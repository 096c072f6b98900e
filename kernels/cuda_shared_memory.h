// How much shared memory a thread block may ask for, by which tiles are chosen where a kernel is compiled for several
// GPUs. Those of one GPU, or that take no more than any has, say so themselves (conv2d_int8/cuda/*/tiles.h).
#pragma once

namespace octet::kernels {

/// Bytes, on a GPU of that compute capability (90 for 9.0): what Hopper and the large Blackwell have; of all others,
/// from 8.0 on, the least.
constexpr int cuda_shared_limit(int capability) { return (capability >= 90 && capability < 120 ? 227 : 99) * 1024; }

}  // namespace octet::kernels
