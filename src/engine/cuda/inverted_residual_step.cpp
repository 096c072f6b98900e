#include "src/engine/cuda/inverted_residual_step.h"

#include <utility>

#include "kernels/inverted_residual_int8/cuda_inverted_residual_int8.h"
#include "src/cuda/this_gpu.h"
#include "src/engine/cuda/packed_step.h"

namespace octet {
namespace {

kernels::ConvNode convolution(const Lowering& lowering, int node) {
  return {lowering.conv2d_shape(node), lowering.conv2d_params(node), lowering.conv2d_weights(node)};
}

}  // namespace

GroupKernels inverted_residual_kernels(const Lowering& lowering, const NodeGroup& group) {
  const std::vector<int>& nodes = group.nodes;
  kernels::InvertedResidual convolutions{.has_expand = nodes.size() == 3,
                                         .depthwise = convolution(lowering, nodes[nodes.size() - 2]),
                                         .project = convolution(lowering, nodes.back())};
  if (nodes.size() == 3) convolutions.expand = convolution(lowering, nodes.front());
  if (!kernels::cuda_runs_inverted_residual(convolutions, 1, this_gpu())) return nullptr;
  const auto block = std::make_shared<const kernels::InvertedResidual>(std::move(convolutions));
  const auto constants =
      std::make_shared<SharedConstants>([block] { return kernels::cuda_inverted_residual_pack(*block); });
  return [block, constants](int images) {
    CudaSteps steps;
    for (const kernels::CudaInvertedResidual& choice :
         kernels::cuda_inverted_residual_choices(*block, images, this_gpu())) {
      const auto launch = [block, choice](const CudaStepData& data, const uint8_t* packed, CudaStream stream) {
        kernels::cuda_inverted_residual(choice, *block,
                                        {.images = data.images,
                                         .packed = packed,
                                         .x = data.inputs[0],
                                         .residual = block->project.params.has_residual ? data.inputs[1] : nullptr,
                                         .y = data.output},
                                        stream);
      };
      steps.push_back(std::make_unique<PackedStep>(choice.name(), constants, launch));
    }
    return steps;
  };
}

}  // namespace octet
