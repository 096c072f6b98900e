// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/refused_launches.h"

#include "kernels/core/launch.cuh"

namespace octet {
namespace {

__global__ void empty_kernel() {}

}  // namespace

void launch_empty(const EmptyBlock& block, CudaStream stream) {
  empty_kernel<<<1, block.threads, block.shared_bytes, stream>>>();
  kernels::check_launch("empty");
}

void launch_empty_cluster(unsigned blocks, CudaStream stream) {
  kernels::launch_overlapped_clusters(empty_kernel, dim3(blocks), dim3(blocks), dim3(32), 0, stream);
  kernels::check_launch("empty");
}

void allow_shared_bytes(int bytes) {
  kernels::check_launch("empty",
                        cudaFuncSetAttribute(empty_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

void report_cluster_refused() { kernels::check_launch("empty", cudaErrorInvalidClusterSize); }

}  // namespace octet
