#include "src/engine/cuda/expand_reduce_step.h"

#include "kernels/expand_reduce_int8/cuda_expand_reduce_int8.h"
#include "src/cuda/this_gpu.h"
#include "src/engine/cuda/packed_step.h"

namespace octet {

using kernels::CudaExpandReduce;
using kernels::ExpandReduce;

GroupKernels expand_reduce_kernels(const Lowering& lowering, const NodeGroup& group) {
  const auto layer = [&](int node) {
    return kernels::PointwiseConv{lowering.conv2d_shape(node), lowering.conv2d_params(node),
                                  lowering.conv2d_weights(node)};
  };
  const auto layers = std::make_shared<const ExpandReduce>(ExpandReduce{layer(group.nodes[0]), layer(group.nodes[1])});
  if (kernels::cuda_expand_reduce_choices(*layers, 1, this_gpu()).empty()) return nullptr;
  const auto constants =
      std::make_shared<SharedConstants>([layers] { return kernels::cuda_expand_reduce_pack(*layers); });
  return [layers, constants](int images) {
    CudaSteps steps;
    for (const CudaExpandReduce& choice : kernels::cuda_expand_reduce_choices(*layers, images, this_gpu())) {
      const auto launch = [layers, choice](const CudaStepData& data, const uint8_t* packed, CudaStream stream) {
        const uint8_t* residual = layers->expand.params.has_residual ? data.inputs[1] : nullptr;
        kernels::cuda_expand_reduce(
            choice, *layers, {data.images, packed, data.inputs[0], residual, data.first_output, data.output}, stream);
      };
      steps.push_back(std::make_unique<PackedStep>(choice.name(), constants, launch));
    }
    return steps;
  };
}

}  // namespace octet
