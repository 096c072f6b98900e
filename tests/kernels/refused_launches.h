// SPDX-License-Identifier: Apache-2.0
// Launches of an empty kernel, checked as kernels' launches are, for launch_refused_cuda_test.cpp.
#pragma once

#include <cstddef>

#include "kernels/core/cuda.h"

namespace octet {

struct EmptyBlock {
  unsigned threads = 32;
  size_t shared_bytes = 0;
};

void launch_empty(const EmptyBlock& block, CudaStream stream);
void launch_empty_cluster(unsigned blocks, CudaStream stream);  ///< as kernels of clusters are launched
void allow_shared_bytes(int bytes);                             ///< of the empty kernel
void report_cluster_refused();                                  ///< as if a launch had ended so

}  // namespace octet
