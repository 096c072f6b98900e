#include "src/engine/cuda/group_steps.h"

#include "src/engine/cuda/conv_max_pool_step.h"
#include "src/engine/cuda/inverted_residual_step.h"

namespace octet {
namespace {

using Steps = std::vector<std::unique_ptr<CudaStep>>;

// The one place where a kind of group gets its kernels.
Steps all_steps(const Lowering& lowering, const NodeGroup& group, int images) {
  switch (group.kind) {
    case GroupKind::conv_max_pool:
      return make_conv_max_pool_steps(lowering, group);
    case GroupKind::inverted_residual:
      return inverted_residual_steps(lowering, group, images);
  }
  return {};
}

}  // namespace

CudaGroupFactory cuda_group_steps(const std::string& kernels) {
  if (kernels == kSeparateKernels) return [](const Lowering&, const NodeGroup&, int) { return Steps(); };
  return [part = kernels_of_nodes(kernels)](const Lowering& lowering, const NodeGroup& group, int images) {
    Steps steps = all_steps(lowering, group, images);
    if (part != "auto") {
      std::erase_if(steps, [&](const auto& step) { return step->kernel(images).find(part) == std::string::npos; });
    }
    return steps;
  };
}

std::string kernels_of_nodes(const std::string& kernels) {
  return kernels == kSeparateKernels || kernels == kFusedKernels ? "auto" : kernels;
}

}  // namespace octet
