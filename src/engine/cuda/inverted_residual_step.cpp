#include "src/engine/cuda/inverted_residual_step.h"

#include <utility>

#include "kernels/inverted_residual_int8/cuda_inverted_residual_int8.h"
#include "src/engine/cuda/shared_constants.h"
#include "src/engine/cuda/this_gpu.h"

namespace octet {
namespace {

// What all steps of a group share.
struct Block {
  kernels::InvertedResidual convolutions;
  SharedConstants packed;
};

class InvertedResidualStep final : public CudaStep {
 public:
  InvertedResidualStep(std::shared_ptr<Block> block, kernels::CudaInvertedResidual choice)
      : block_(std::move(block)), choice_(choice) {}

  std::string kernel(int) const override { return choice_.name(); }

  void prepare(const CudaStepData&, const Stream& stream) override {
    const auto pack = [&] { return kernels::cuda_inverted_residual_pack(block_->convolutions); };
    packed_ = block_->packed.upload(pack, stream);
  }

  size_t constant_bytes() const override { return packed_->bytes(); }

  void launch(const CudaStepData& data, CudaStream stream) const override {
    kernels::cuda_inverted_residual(
        choice_, block_->convolutions,
        {.images = data.images,
         .packed = packed_->data(),
         .x = data.inputs[0],
         .residual = block_->convolutions.project.params.has_residual ? data.inputs[1] : nullptr,
         .y = data.output},
        stream);
  }

 private:
  std::shared_ptr<Block> block_;
  kernels::CudaInvertedResidual choice_;
  std::shared_ptr<const DeviceBuffer> packed_;
};

kernels::ConvNode convolution(const Lowering& lowering, int node) {
  return {lowering.conv2d_shape(node), lowering.conv2d_params(node), lowering.conv2d_weights(node)};
}

}  // namespace

GroupKernels inverted_residual_kernels(const Lowering& lowering, const NodeGroup& group) {
  const std::vector<int>& nodes = group.nodes;
  const auto block = std::make_shared<Block>();
  block->convolutions = {.has_expand = nodes.size() == 3,
                         .depthwise = convolution(lowering, nodes[nodes.size() - 2]),
                         .project = convolution(lowering, nodes.back())};
  if (nodes.size() == 3) block->convolutions.expand = convolution(lowering, nodes.front());
  if (!kernels::cuda_runs_inverted_residual(block->convolutions, 1, this_gpu())) return nullptr;
  return [block](int images) {
    CudaSteps steps;
    for (const kernels::CudaInvertedResidual& choice :
         kernels::cuda_inverted_residual_choices(block->convolutions, images, this_gpu())) {
      steps.push_back(std::make_unique<InvertedResidualStep>(block, choice));
    }
    return steps;
  };
}

}  // namespace octet
