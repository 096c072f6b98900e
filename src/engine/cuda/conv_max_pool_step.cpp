#include "src/engine/cuda/conv_max_pool_step.h"

#include <utility>

#include "kernels/conv_max_pool_int8/cuda_conv_max_pool_int8.h"
#include "src/engine/cuda/shared_constants.h"

namespace octet {
namespace {

using kernels::ConvMaxPool;
using kernels::CudaConvMaxPool;

class ConvMaxPoolStep final : public CudaStep {
 public:
  ConvMaxPoolStep(std::shared_ptr<const ConvMaxPool> layers, std::shared_ptr<SharedConstants> constants,
                  CudaConvMaxPool choice)
      : layers_(std::move(layers)), constants_(std::move(constants)), choice_(std::move(choice)) {}
  std::string kernel(int) const override { return choice_.name; }
  void prepare(const CudaStepData&, const Stream& stream) override {
    packed_ = constants_->upload([&] { return kernels::cuda_conv_max_pool_pack(*layers_); }, stream);
  }
  size_t constant_bytes() const override { return packed_->bytes(); }
  void launch(const CudaStepData& data, CudaStream stream) const override {
    kernels::cuda_conv_max_pool(choice_, *layers_, {data.images, packed_->data(), data.inputs[0], data.output}, stream);
  }

 private:
  std::shared_ptr<const ConvMaxPool> layers_;
  std::shared_ptr<SharedConstants> constants_;
  std::shared_ptr<const DeviceBuffer> packed_;  // the same for all choices
  CudaConvMaxPool choice_;
};

}  // namespace

GroupKernels conv_max_pool_kernels(const Lowering& lowering, const NodeGroup& group) {
  const int conv = group.nodes[0], pool = group.nodes[1];
  const auto layers = std::make_shared<const ConvMaxPool>(
      ConvMaxPool{lowering.conv2d_shape(conv), lowering.conv2d_params(conv), lowering.conv2d_weights(conv),
                  lowering.pool_shape(pool), lowering.max_pool_params(pool)});
  const std::vector<CudaConvMaxPool> choices = kernels::cuda_conv_max_pool_choices(*layers);
  if (choices.empty()) return nullptr;
  return [layers, choices, constants = std::make_shared<SharedConstants>()](int) {
    CudaSteps steps;
    for (const CudaConvMaxPool& choice : choices) {
      steps.push_back(std::make_unique<ConvMaxPoolStep>(layers, constants, choice));
    }
    return steps;
  };
}

}  // namespace octet
