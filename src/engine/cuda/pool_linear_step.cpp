#include "src/engine/cuda/pool_linear_step.h"

#include "kernels/pool_linear_int8/cuda_pool_linear_int8.h"
#include "src/cuda/this_gpu.h"
#include "src/engine/cuda/packed_step.h"

namespace octet {

using kernels::CudaPoolLinear;
using kernels::PoolLinear;

GroupKernels pool_linear_kernels(const Lowering& lowering, const NodeGroup& group) {
  const int pool = group.nodes[0], linear = group.nodes[1];
  const auto layers = std::make_shared<const PoolLinear>(
      PoolLinear{lowering.pool_shape(pool), lowering.avg_pool_params(pool), lowering.conv2d_shape(linear),
                 lowering.conv2d_params(linear), lowering.conv2d_weights(linear)});
  if (kernels::cuda_pool_linear_choices(*layers, 1, this_gpu()).empty()) return nullptr;
  const auto constants =
      std::make_shared<SharedConstants>([layers] { return kernels::cuda_pool_linear_pack(*layers); });
  return [layers, constants](int images) {
    CudaSteps steps;
    for (const CudaPoolLinear& choice : kernels::cuda_pool_linear_choices(*layers, images, this_gpu())) {
      const auto launch = [layers, choice](const CudaStepData& data, const uint8_t* packed, CudaStream stream) {
        kernels::cuda_pool_linear(choice, *layers, {data.images, packed, data.inputs[0], data.output}, stream);
      };
      steps.push_back(std::make_unique<PackedStep>(choice.name(), constants, launch));
    }
    return steps;
  };
}

}  // namespace octet
