#include "src/engine/cuda/conv_max_pool_step.h"

#include "kernels/conv_max_pool_int8/cuda_conv_max_pool_int8.h"
#include "src/engine/cuda/packed_step.h"

namespace octet {

using kernels::ConvMaxPool;
using kernels::CudaConvMaxPool;

GroupKernels conv_max_pool_kernels(const Lowering& lowering, const NodeGroup& group) {
  const int conv = group.nodes[0], pool = group.nodes[1];
  const auto layers = std::make_shared<const ConvMaxPool>(
      ConvMaxPool{lowering.conv2d_shape(conv), lowering.conv2d_params(conv), lowering.conv2d_weights(conv),
                  lowering.pool_shape(pool), lowering.max_pool_params(pool)});
  const std::vector<CudaConvMaxPool> choices = kernels::cuda_conv_max_pool_choices(*layers);
  if (choices.empty()) return nullptr;
  const auto constants =
      std::make_shared<SharedConstants>([layers] { return kernels::cuda_conv_max_pool_pack(*layers); });
  return [layers, choices, constants](int) {
    CudaSteps steps;
    for (const CudaConvMaxPool& choice : choices) {
      const auto launch = [layers, choice](const CudaStepData& data, const uint8_t* packed, CudaStream stream) {
        kernels::cuda_conv_max_pool(choice, *layers, {data.images, packed, data.inputs[0], data.output}, stream);
      };
      steps.push_back(std::make_unique<PackedStep>(choice.name, constants, launch));
    }
    return steps;
  };
}

}  // namespace octet
