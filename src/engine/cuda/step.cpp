// Steps that are one kernel without a choice: input, pools, add, mul, requantize and concat, matmul, softmax, lookup,
// copies.
#include <vector>

#include "kernels/bilinear_int8/cuda_bilinear_int8.h"
#include "kernels/elementwise_int8/cuda_copy_codes.h"
#include "kernels/elementwise_int8/cuda_elementwise_int8.h"
#include "kernels/elementwise_int8/cuda_lookup_int8.h"
#include "kernels/elementwise_int8/cuda_pick_int8.h"
#include "kernels/elementwise_int8/cuda_subsample_pad_int8.h"
#include "kernels/image_int8/cuda_image_int8.h"
#include "kernels/matmul_int8/cuda_matmul_int8.h"
#include "kernels/pool_int8/cuda_pool_int8.h"
#include "kernels/softmax_int8/cuda_softmax_int8.h"
#include "src/cuda/memory.h"
#include "src/engine/cuda/conv_step.h"

namespace octet {
namespace {

long pixels_of(const Shape& shape) { return static_cast<long>(shape.h) * shape.w; }

class InputStep final : public CudaStep {
 public:
  InputStep(const Lowering& lowering, int node)
      : shape_{lowering.graph.nodes[node].shape.c, lowering.output_stride(node)},
        pixels_(pixels_of(lowering.graph.nodes[node].shape)) {
    for (int c = 0; c < shape_.channels; ++c) {
      const std::vector<uint8_t> table = input_table(lowering.graph, c);
      codes_.insert(codes_.end(), table.begin(), table.end());
    }
  }
  std::string kernel(int) const override { return "input_table"; }
  void prepare(const CudaStepData&, const Stream& stream) override {
    if (tables_.bytes() == 0) tables_ = to_device(codes_, "input tables", stream.get());
  }
  size_t constant_bytes() const override { return tables_.bytes(); }
  void launch(const CudaStepData& data, CudaStream stream) const override {
    kernels::cuda_quantize_image(shape_, pixels_ * data.images, tables_.data(), data.inputs[0],
                                 static_cast<uint8_t*>(data.output), stream);
  }

 private:
  kernels::ImageShape shape_;
  long pixels_;  // of one image
  std::vector<uint8_t> codes_;
  DeviceBuffer tables_;
};

class MaxPoolStep final : public CudaStep {
 public:
  MaxPoolStep(const Lowering& lowering, int node)
      : shape_(lowering.pool_shape(node)), params_(lowering.max_pool_params(node)) {}
  std::string kernel(int) const override { return "max_pool"; }
  void launch(const CudaStepData& data, CudaStream stream) const override {
    kernels::cuda_max_pool_int8(shape_, params_, {data.images, data.inputs[0], data.output}, stream);
  }

 private:
  kernels::PoolShape shape_;
  kernels::MaxPoolParams params_;
};

class AvgPoolStep final : public CudaStep {
 public:
  AvgPoolStep(const Lowering& lowering, int node)
      : shape_(lowering.pool_shape(node)), params_(lowering.avg_pool_params(node)) {}
  std::string kernel(int) const override { return "avg_pool"; }
  size_t zeroed_bytes(int images) const override { return kernels::cuda_avg_pool_workspace(shape_, images); }
  void launch(const CudaStepData& data, CudaStream stream) const override {
    kernels::cuda_avg_pool_int8(shape_, params_, {data.images, data.inputs[0], data.output, data.zeroed}, stream);
  }

 private:
  kernels::PoolShape shape_;
  kernels::AvgPoolParams params_;
};

class BilinearStep final : public CudaStep {
 public:
  BilinearStep(const Lowering& lowering, int node)
      : shape_(lowering.bilinear_shape(node)), params_(lowering.bilinear_params(node)) {}
  std::string kernel(int) const override { return "resize_bilinear"; }
  void launch(const CudaStepData& data, CudaStream stream) const override {
    kernels::cuda_bilinear_int8(shape_, params_, {data.images, data.inputs[0], data.output}, stream);
  }

 private:
  kernels::BilinearShape shape_;
  kernels::BilinearParams params_;
};

// add and mul: one kernel on two inputs.
template <class Params, auto kKernel>
class PairStep final : public CudaStep {
 public:
  PairStep(const Lowering& lowering, int node, const kernels::ElementwiseShape& shape, const Params& params)
      : name_(int8_op_name(lowering.graph.nodes[node].op)), shape_(shape), params_(params) {}
  std::string kernel(int) const override { return name_; }
  void launch(const CudaStepData& data, CudaStream stream) const override {
    kKernel(shape_, params_, {data.images, data.inputs[0], data.inputs[1], data.output}, stream);
  }

 private:
  std::string name_;
  kernels::ElementwiseShape shape_;
  Params params_;
};

class MatmulStep final : public CudaStep {
 public:
  MatmulStep(const Lowering& lowering, int node)
      : shape_(lowering.matmul_shape(node)), params_(lowering.matmul_params(node)) {}
  std::string kernel(int) const override { return "matmul"; }
  void launch(const CudaStepData& data, CudaStream stream) const override {
    kernels::cuda_matmul_int8(shape_, params_, {data.images, data.inputs[0], data.inputs[1], data.output}, stream);
  }

 private:
  kernels::MatmulShape shape_;
  kernels::MatmulParams params_;
};

class SoftmaxStep final : public CudaStep {
 public:
  SoftmaxStep(const Lowering& lowering, int node)
      : shape_(lowering.softmax_shape(node)), params_(lowering.softmax_params(node)) {}
  std::string kernel(int) const override { return "softmax"; }
  void launch(const CudaStepData& data, CudaStream stream) const override {
    kernels::SoftmaxShape shape = shape_;
    shape.pixels *= data.images;
    kernels::cuda_softmax_int8(shape, params_, data.inputs[0], data.output, stream);
  }

 private:
  kernels::SoftmaxShape shape_;
  kernels::SoftmaxParams params_;
};

class RequantizeStep final : public CudaStep {
 public:
  RequantizeStep(const Lowering& lowering, int node) : name_(int8_op_name(lowering.graph.nodes[node].op)) {
    for (size_t i = 0; i < lowering.graph.nodes[node].inputs.size(); ++i) {
      shapes_.push_back(lowering.elementwise_shape(node, i));
      params_.push_back(lowering.requantize_params(node, i));
    }
  }
  std::string kernel(int) const override { return name_; }
  void launch(const CudaStepData& data, CudaStream stream) const override {
    uint8_t* y = static_cast<uint8_t*>(data.output);
    for (size_t i = 0; i < shapes_.size(); ++i) {
      kernels::cuda_requantize_int8(shapes_[i], params_[i], {data.images, data.inputs[i], nullptr, y}, stream);
      y += shapes_[i].channels * (params_[i].y.float_output ? sizeof(float) : 1);
    }
  }

 private:
  std::string name_;
  std::vector<kernels::ElementwiseShape> shapes_;
  std::vector<kernels::RequantizeParams> params_;
};

class LookupStep final : public CudaStep {
 public:
  LookupStep(const Lowering& lowering, int node)
      : image_bytes_(pixels_of(lowering.graph.nodes[node].shape) * lowering.output_stride(node)),
        table_(lowering.lookup_table(node)) {}
  std::string kernel(int) const override { return "lookup"; }
  void launch(const CudaStepData& data, CudaStream stream) const override {
    kernels::cuda_lookup_int8(table_, data.inputs[0], image_bytes_ * data.images, static_cast<uint8_t*>(data.output),
                              stream);
  }

 private:
  long image_bytes_;
  kernels::LookupTable table_;
};

class SubsamplePadStep final : public CudaStep {
 public:
  SubsamplePadStep(const Lowering& lowering, int node)
      : shape_(lowering.subsample_pad_shape(node)),
        params_(lowering.subsample_pad_params(node)),
        x_image_stride_(pixels_of(lowering.input(node, 0).shape) * shape_.in_stride) {}
  std::string kernel(int) const override { return "subsample_pad"; }
  void launch(const CudaStepData& data, CudaStream stream) const override {
    kernels::cuda_subsample_pad_int8(
        shape_, params_, {data.images, x_image_stride_, data.inputs[0], static_cast<uint8_t*>(data.output)}, stream);
  }

 private:
  kernels::SubsamplePadShape shape_;
  kernels::SubsamplePadParams params_;
  long x_image_stride_;
};

class PickStep final : public CudaStep {
 public:
  PickStep(const Lowering& lowering, int node)
      : name_(int8_op_name(lowering.graph.nodes[node].op)),
        shape_(lowering.pick_shape(node)),
        x_image_stride_(pixels_of(lowering.input(node, 0).shape) * shape_.in_stride) {}
  std::string kernel(int) const override { return name_; }
  void launch(const CudaStepData& data, CudaStream stream) const override {
    kernels::cuda_pick_int8(shape_, {data.images, x_image_stride_, data.inputs[0], static_cast<uint8_t*>(data.output)},
                            stream);
  }

 private:
  std::string name_;
  kernels::PickShape shape_;
  long x_image_stride_;
};

// A flatten whose input has gaps between its pixels: closes them.
class FlattenStep final : public CudaStep {
 public:
  FlattenStep(const Lowering& lowering, int node) {
    const Shape& in = lowering.input(node, 0).shape;
    shape_.pixels = static_cast<int>(pixels_of(in));
    shape_.channels = shape_.y_stride = in.c;
    shape_.x_stride = lowering.stride(in.c);
    shape_.x_image_stride = pixels_of(in) * shape_.x_stride;
    shape_.y_image_stride = lowering.output_stride(node);
  }
  std::string kernel(int) const override { return "flatten_copy"; }
  void launch(const CudaStepData& data, CudaStream stream) const override {
    kernels::CopyCodesShape shape = shape_;
    shape.images = data.images;
    kernels::cuda_copy_codes(shape, data.inputs[0], data.output, stream);
  }

 private:
  kernels::CopyCodesShape shape_;
};

}  // namespace

std::unique_ptr<CudaStep> make_cuda_step(const Lowering& lowering, int node, const std::string& kernels) {
  switch (lowering.graph.nodes[node].op) {
    case Int8Op::input:
      return std::make_unique<InputStep>(lowering, node);
    case Int8Op::conv2d:
    case Int8Op::linear:
      return make_cuda_conv_step(lowering, node, kernels);
    case Int8Op::add:
      return std::make_unique<PairStep<kernels::AddParams, kernels::cuda_add_int8>>(
          lowering, node, lowering.elementwise_shape(node, 0), lowering.add_params(node));
    case Int8Op::mul:
      return std::make_unique<PairStep<kernels::MulParams, kernels::cuda_mul_int8>>(
          lowering, node, lowering.mul_shape(node), lowering.mul_params(node));
    case Int8Op::concat:
    case Int8Op::requantize:
      return std::make_unique<RequantizeStep>(lowering, node);
    case Int8Op::max_pool:
      return std::make_unique<MaxPoolStep>(lowering, node);
    case Int8Op::avg_pool:
    case Int8Op::global_avg_pool:
      return std::make_unique<AvgPoolStep>(lowering, node);
    case Int8Op::resize_bilinear:
      return std::make_unique<BilinearStep>(lowering, node);
    case Int8Op::matmul:
      return std::make_unique<MatmulStep>(lowering, node);
    case Int8Op::softmax:
      return std::make_unique<SoftmaxStep>(lowering, node);
    case Int8Op::lookup:
      return std::make_unique<LookupStep>(lowering, node);
    case Int8Op::subsample_pad:
      return std::make_unique<SubsamplePadStep>(lowering, node);
    case Int8Op::slice:
    case Int8Op::resize:
    case Int8Op::channel_shuffle:
    case Int8Op::depth_to_space:
      return std::make_unique<PickStep>(lowering, node);
    case Int8Op::flatten:
      return lowering.flatten_is_alias(node) ? nullptr : std::make_unique<FlattenStep>(lowering, node);
  }
  throw no_step(lowering.graph.nodes[node], "cuda");
}

}  // namespace octet
