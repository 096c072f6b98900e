// Kernels that compute a group of nodes (fusion.h) as one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/engine/cuda/step.h"
#include "src/engine/fusion.h"

namespace octet {

/// CompileOptions::kernels that speak of groups alone.
inline constexpr const char* kSeparateKernels = "separate";
inline constexpr const char* kFusedKernels = "fused";

using CudaSteps = std::vector<std::unique_ptr<CudaStep>>;

/// A step for each kernel that can compute one group of so many images, the likely fastest first. A step reads
/// inputs[0], what the group's first node reads, and inputs[1], the residual if one of its nodes has one; it writes
/// what the last node writes and, an expand_reduce, what the first does, whether others read that or not. Constants
/// that steps share are on the device as long as one of those that were prepared is there.
using GroupKernels = std::function<CudaSteps(int images)>;

/// The kernels of a group; null where none computes it, whatever the number of images. The factory stays as long as the
/// program, as do `lowering` and its graph.
using CudaGroupFactory = std::function<GroupKernels(const Lowering& lowering, const NodeGroup& group)>;

/// octet's own steps, of whose names `kernels`, CompileOptions::kernels, is a part; it knows the two words above.
CudaGroupFactory cuda_group_steps(const std::string& kernels);

/// CompileOptions::kernels for nodes on their own: "auto" where it speaks of groups alone.
std::string kernels_of_nodes(const std::string& kernels);

}  // namespace octet
