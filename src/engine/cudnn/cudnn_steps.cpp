#include "src/engine/cudnn/cudnn_steps.h"

#include <map>
#include <optional>

#include "kernels/rescale_sums/cuda_rescale_sums.h"
#include "src/cuda/memory.h"
#include "src/engine/cudnn/int8_matmul.h"
#include "src/engine/memory_plan.h"

namespace octet {
namespace {

class CudnnConvStep final : public CudaStep {
 public:
  CudnnConvStep(const Lowering& lowering, int node, bool every_plan) : conv_(lowering, node), every_plan_(every_plan) {}

  std::string engine() const override { return "cudnn"; }
  std::string kernel(int images) const override { return "cudnn_conv " + convs_.at(images)->name(); }

  void prepare(const CudaStepData& data, const Stream& stream) override {
    FusedConvSpec spec = conv_.spec(data.images);
    spec.every_plan = every_plan_;
    conv_.upload(stream);
    convs_[data.images] = fused_conv(spec, conv_.tensors(data), stream);
  }

  size_t scratch_bytes(int images) const override { return convs_.at(images)->workspace_bytes(); }
  size_t constant_bytes() const override { return conv_.constant_bytes(); }

  void launch(const CudaStepData& data, CudaStream stream) const override {
    convs_.at(data.images)->launch(conv_.tensors(data), stream);
  }

 private:
  PeerConv conv_;
  bool every_plan_;
  std::map<int, std::shared_ptr<const FusedConv>> convs_;  ///< by number of images
};

/// Exact: int32 sums, then the rule of kernels/quantize.h.
class CudnnLinearStep final : public CudaStep {
 public:
  CudnnLinearStep(const Lowering& lowering, int node)
      : shape_(lowering.conv2d_shape(node)),
        weights_(lowering.conv2d_weights(node)),
        out_(lowering.conv2d_params(node).y),
        lanes_((shape_.out_c + 15) / 16 * 16) {}

  std::string engine() const override { return "cudnn"; }
  std::string kernel(int images) const override { return "cublaslt_int8 " + products_.at(images).name(); }

  void prepare(const CudaStepData& data, const Stream& stream) override {
    if (!constants_)
      constants_.emplace(shape_, weights_, /*residual_multiplier=*/0.0f, shape_.in_stride, lanes_, stream);
    const DeviceBuffer sums(sums_bytes(data.images), "sums of a linear layer");
    CudaStepData own = data;
    own.scratch = sums.data();
    products_.erase(data.images);
    products_.try_emplace(data.images, Int8MatmulShape{data.images, shape_.in_stride, lanes_}, tensors(own), stream);
  }

  size_t scratch_bytes(int images) const override {
    return sums_bytes(images) + products_.at(images).workspace_bytes();
  }
  size_t constant_bytes() const override { return constants_ ? constants_->bytes() : 0; }

  void launch(const CudaStepData& data, CudaStream stream) const override {
    const Int8MatmulTensors product = tensors(data);
    products_.at(data.images).launch(product, stream);
    kernels::cuda_rescale_sums({data.images, shape_.out_c, lanes_, shape_.out_stride}, out_, product.sums,
                               constants_->multiplier(), constants_->bias(), data.output, stream);
  }

 private:
  /// With room so that the workspace behind it is aligned.
  size_t sums_bytes(int images) const { return aligned(sizeof(int32_t) * images * lanes_, kDeviceAlignment); }

  Int8MatmulTensors tensors(const CudaStepData& data) const {
    return {reinterpret_cast<const int8_t*>(data.inputs[0]), constants_->weight(), static_cast<int32_t*>(data.scratch),
            static_cast<uint8_t*>(data.scratch) + sums_bytes(data.images)};
  }

  kernels::Conv2dShape shape_;
  kernels::Conv2dWeights weights_;
  kernels::CodeOutput out_;
  int lanes_;  ///< outputs, rounded up to whole lanes
  std::optional<PeerConstants> constants_;
  std::map<int, Int8Matmul> products_;  ///< by number of images
};

}  // namespace

std::unique_ptr<CudaStep> make_cudnn_conv_step(const Lowering& lowering, int node, bool every_plan) {
  return std::make_unique<CudnnConvStep>(lowering, node, every_plan);
}

std::unique_ptr<CudaStep> make_cudnn_linear_step(const Lowering& lowering, int node) {
  return std::make_unique<CudnnLinearStep>(lowering, node);
}

}  // namespace octet
