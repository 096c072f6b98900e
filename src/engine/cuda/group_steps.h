// SPDX-License-Identifier: Apache-2.0
// Kernels that compute a group of nodes (fusion.h) as one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/engine/cuda/step.h"
#include "src/engine/fusion.h"

namespace octet {

/// The values of CompileOptions::kernels that concern groups alone.
inline constexpr const char* kSeparateKernels = "separate";
inline constexpr const char* kFusedKernels = "fused";

using CudaSteps = std::vector<std::unique_ptr<CudaStep>>;

/// Returns a step for each kernel that can compute one group of so many images, the likely fastest first. A step reads
/// inputs[0], the input of the group's first node, and inputs[1], the residual if one of its nodes has one. It writes
/// the last node's output; an expand_reduce also writes the first node's, whether other nodes read it or not. The steps
/// share their constants, which are on the device as long as one of the prepared steps lives.
using GroupKernels = std::function<CudaSteps(int images)>;

/// Returns the kernels of a group, or null if none computes it for any number of images. The factory, `lowering` and
/// its graph outlive the program.
using CudaGroupFactory = std::function<GroupKernels(const Lowering& lowering, const NodeGroup& group)>;

/// Returns the factory of octet's own kernels whose names contain `kernels`, which is CompileOptions::kernels.
CudaGroupFactory cuda_group_steps(const std::string& kernels);

/// Returns CompileOptions::kernels for single nodes: "auto" instead of the two values above.
std::string kernels_of_nodes(const std::string& kernels);

}  // namespace octet
