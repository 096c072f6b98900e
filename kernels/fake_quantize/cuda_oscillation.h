// Freezing of oscillating weights on the GPU, all of a network in one launch a step. The definition is oscillation.h.
#pragma once

#include "kernels/cuda_stream.h"
#include "kernels/fake_quantize/oscillation.h"

namespace octet::kernels {

/// Scalars on the device, read when the kernel runs.
struct OscillationRules {
  const float* threshold = nullptr;
  const float* skip = nullptr;  ///< 1: the optimizer's step was skipped, and so is this one
};

/// `weights`: `count` of them, in host memory, copied with the launch (one launch for each 56); their pointers on the
/// device.
void cuda_freeze_oscillating(const OscillationRules& rules, const OscillatingWeights* weights, int count,
                             CudaStream stream);

}  // namespace octet::kernels
