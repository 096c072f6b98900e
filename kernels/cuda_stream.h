// The stream of every CUDA kernel function, without CUDA's headers: the same type as cudaStream_t.
#pragma once

struct CUstream_st;

namespace octet {

using CudaStream = CUstream_st*;

}  // namespace octet
