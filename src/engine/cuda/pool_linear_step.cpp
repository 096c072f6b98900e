#include "src/engine/cuda/pool_linear_step.h"

#include <utility>

#include "kernels/pool_linear_int8/cuda_pool_linear_int8.h"
#include "src/engine/cuda/shared_constants.h"
#include "src/engine/cuda/this_gpu.h"

namespace octet {
namespace {

using kernels::CudaPoolLinear;
using kernels::PoolLinear;

class PoolLinearStep final : public CudaStep {
 public:
  PoolLinearStep(std::shared_ptr<const PoolLinear> layers, std::shared_ptr<SharedConstants> constants,
                 CudaPoolLinear choice)
      : layers_(std::move(layers)), constants_(std::move(constants)), choice_(choice) {}
  std::string kernel(int) const override { return choice_.name(); }
  void prepare(const CudaStepData&, const Stream& stream) override {
    packed_ = constants_->upload([&] { return kernels::cuda_pool_linear_pack(*layers_); }, stream);
  }
  size_t constant_bytes() const override { return packed_->bytes(); }
  void launch(const CudaStepData& data, CudaStream stream) const override {
    kernels::cuda_pool_linear(choice_, *layers_, {data.images, packed_->data(), data.inputs[0], data.output}, stream);
  }

 private:
  std::shared_ptr<const PoolLinear> layers_;
  std::shared_ptr<SharedConstants> constants_;
  CudaPoolLinear choice_;
  std::shared_ptr<const DeviceBuffer> packed_;
};

}  // namespace

GroupKernels pool_linear_kernels(const Lowering& lowering, const NodeGroup& group) {
  const int pool = group.nodes[0], linear = group.nodes[1];
  const auto layers = std::make_shared<const PoolLinear>(
      PoolLinear{lowering.pool_shape(pool), lowering.avg_pool_params(pool), lowering.conv2d_shape(linear),
                 lowering.conv2d_params(linear), lowering.conv2d_weights(linear)});
  if (kernels::cuda_pool_linear_choices(*layers, 1, this_gpu()).empty()) return nullptr;
  return [layers, constants = std::make_shared<SharedConstants>()](int images) {
    CudaSteps steps;
    for (const CudaPoolLinear& choice : kernels::cuda_pool_linear_choices(*layers, images, this_gpu())) {
      steps.push_back(std::make_unique<PoolLinearStep>(layers, constants, choice));
    }
    return steps;
  };
}

}  // namespace octet
