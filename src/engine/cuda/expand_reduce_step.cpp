#include "src/engine/cuda/expand_reduce_step.h"

#include <utility>

#include "kernels/expand_reduce_int8/cuda_expand_reduce_int8.h"
#include "src/engine/cuda/shared_constants.h"
#include "src/engine/cuda/this_gpu.h"

namespace octet {
namespace {

using kernels::CudaExpandReduce;
using kernels::ExpandReduce;

class ExpandReduceStep final : public CudaStep {
 public:
  ExpandReduceStep(std::shared_ptr<const ExpandReduce> layers, std::shared_ptr<SharedConstants> constants,
                   CudaExpandReduce choice)
      : layers_(std::move(layers)), constants_(std::move(constants)), choice_(choice) {}
  std::string kernel(int) const override { return choice_.name(); }
  void prepare(const CudaStepData&, const Stream& stream) override {
    packed_ = constants_->upload([&] { return kernels::cuda_expand_reduce_pack(*layers_); }, stream);
  }
  size_t constant_bytes() const override { return packed_->bytes(); }
  void launch(const CudaStepData& data, CudaStream stream) const override {
    const uint8_t* residual = layers_->expand.params.has_residual ? data.inputs[1] : nullptr;
    kernels::cuda_expand_reduce(
        choice_, *layers_, {data.images, packed_->data(), data.inputs[0], residual, data.first_output, data.output},
        stream);
  }

 private:
  std::shared_ptr<const ExpandReduce> layers_;
  std::shared_ptr<SharedConstants> constants_;
  CudaExpandReduce choice_;
  std::shared_ptr<const DeviceBuffer> packed_;
};

}  // namespace

GroupKernels expand_reduce_kernels(const Lowering& lowering, const NodeGroup& group) {
  const auto layer = [&](int node) {
    return kernels::PointwiseConv{lowering.conv2d_shape(node), lowering.conv2d_params(node),
                                  lowering.conv2d_weights(node)};
  };
  const auto layers = std::make_shared<const ExpandReduce>(ExpandReduce{layer(group.nodes[0]), layer(group.nodes[1])});
  if (kernels::cuda_expand_reduce_choices(*layers, 1, this_gpu()).empty()) return nullptr;
  return [layers, constants = std::make_shared<SharedConstants>()](int images) {
    CudaSteps steps;
    for (const CudaExpandReduce& choice : kernels::cuda_expand_reduce_choices(*layers, images, this_gpu())) {
      steps.push_back(std::make_unique<ExpandReduceStep>(layers, constants, choice));
    }
    return steps;
  };
}

}  // namespace octet
