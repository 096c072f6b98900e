// Steps of the cudnn engine, for CudaProgram: convolutions through cuDNN's graph API, linears through cuBLASLt.
#pragma once

#include <memory>
#include <vector>

#include "src/engine/cuda/peer_conv.h"
#include "src/engine/cuda/step.h"
#include "src/engine/cudnn/fused_conv.h"
#include "src/engine/lowering.h"

namespace octet {

/// `every_plan`: times all that cuDNN proposes, else takes its first.
std::unique_ptr<CudaStep> make_cudnn_conv_step(const Lowering& lowering, int node, bool every_plan);
std::unique_ptr<CudaStep> make_cudnn_linear_step(const Lowering& lowering, int node);

}  // namespace octet
