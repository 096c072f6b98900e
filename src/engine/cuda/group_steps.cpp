#include "src/engine/cuda/group_steps.h"

#include "src/engine/cuda/conv_max_pool_step.h"
#include "src/engine/cuda/expand_reduce_step.h"
#include "src/engine/cuda/inverted_residual_step.h"
#include "src/engine/cuda/pool_linear_step.h"

namespace octet {
namespace {

// The one place where a kind of group gets its kernels.
GroupKernels all_kernels(const Lowering& lowering, const NodeGroup& group) {
  switch (group.kind) {
    case GroupKind::conv_max_pool:
      return conv_max_pool_kernels(lowering, group);
    case GroupKind::inverted_residual:
      return inverted_residual_kernels(lowering, group);
    case GroupKind::expand_reduce:
      return expand_reduce_kernels(lowering, group);
    case GroupKind::pool_linear:
      return pool_linear_kernels(lowering, group);
  }
  return nullptr;
}

}  // namespace

CudaGroupFactory cuda_group_steps(const std::string& kernels) {
  if (kernels == kSeparateKernels) return [](const Lowering&, const NodeGroup&) { return GroupKernels(); };
  return [part = kernels_of_nodes(kernels)](const Lowering& lowering, const NodeGroup& group) {
    GroupKernels all = all_kernels(lowering, group);
    if (part == "auto" || !all) return all;
    return GroupKernels([part, all](int images) {
      CudaSteps steps = all(images);
      std::erase_if(steps, [&](const auto& step) { return step->kernel(images).find(part) == std::string::npos; });
      return steps;
    });
  };
}

std::string kernels_of_nodes(const std::string& kernels) {
  return kernels == kSeparateKernels || kernels == kFusedKernels ? "auto" : kernels;
}

}  // namespace octet
