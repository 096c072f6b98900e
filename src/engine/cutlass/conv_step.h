// The step of the cutlass engine, for CudaProgram.
#pragma once

#include <memory>

#include "src/engine/cuda/step.h"

namespace octet {

/// A conv2d or linear that CutlassEngine supports, by the fastest of cutlass_kernels(): each is timed, once a process
/// for a shape and number of images. Channels are the pixel strides, as for cuDNN (cuda/peer_conv.h).
std::unique_ptr<CudaStep> make_cutlass_step(const Lowering& lowering, int node);

}  // namespace octet
