// Convolutions and linears on the GPU: the one step that chooses among kernels.
#pragma once

#include <memory>
#include <string>

#include "src/engine/cuda/step.h"

namespace octet {

/// `kernels`: CompileOptions::kernels.
std::unique_ptr<CudaStep> make_cuda_conv_step(const Lowering& lowering, int node, const std::string& kernels);

}  // namespace octet
