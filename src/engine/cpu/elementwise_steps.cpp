#include "kernels/elementwise_int8/cpu_elementwise_int8.h"
#include "src/engine/cpu/image_step.h"

namespace octet {
namespace {

using kernels::CpuIsa;
using kernels::Range;

// Rows are the units.
class RequantizeStep final : public ImageStep {
 public:
  RequantizeStep(const Lowering& lowering, int node, CpuIsa isa)
      : ImageStep(lowering, node, kernel_name(int8_op_name(lowering.graph.nodes[node].op), isa),
                  lowering.graph.nodes[node].shape.h),
        width_(lowering.graph.nodes[node].shape.w),
        isa_(isa) {
    for (size_t i = 0; i < lowering.graph.nodes[node].inputs.size(); ++i) {
      shapes_.push_back(lowering.elementwise_shape(node, i));
      params_.push_back(lowering.requantize_params(node, i));
    }
  }

 private:
  void run_image(const StepData& data, int image, Range rows) const override {
    const Range pixels{rows.begin * width_, rows.end * width_};
    const size_t element = params_[0].y.float_output ? sizeof(float) : 1;
    size_t channel = 0;
    for (size_t i = 0; i < shapes_.size(); ++i) {
      kernels::cpu_requantize_u8(isa_, shapes_[i], params_[i], pixels, input(data, i, image),
                                 output(data, image) + channel * element);
      channel += shapes_[i].channels;
    }
  }
  int width_;
  std::vector<kernels::ElementwiseShape> shapes_;
  std::vector<kernels::RequantizeParams> params_;
  CpuIsa isa_;
};

// add and mul: one kernel on two inputs.
template <class Params, auto kKernel>
class PairStep final : public ImageStep {
 public:
  PairStep(const Lowering& lowering, int node, CpuIsa isa, const kernels::ElementwiseShape& shape, const Params& params)
      : ImageStep(lowering, node, kernel_name(int8_op_name(lowering.graph.nodes[node].op), isa),
                  lowering.graph.nodes[node].shape.h),
        width_(lowering.graph.nodes[node].shape.w),
        shape_(shape),
        params_(params),
        isa_(isa) {}

 private:
  void run_image(const StepData& data, int image, Range rows) const override {
    kKernel(isa_, shape_, params_, {rows.begin * width_, rows.end * width_}, input(data, 0, image),
            input(data, 1, image), output(data, image));
  }
  int width_;
  kernels::ElementwiseShape shape_;
  Params params_;
  CpuIsa isa_;
};

}  // namespace

std::unique_ptr<CpuStep> make_requantize_step(const Lowering& lowering, int node, kernels::CpuIsa isa) {
  return std::make_unique<RequantizeStep>(lowering, node, isa);
}

std::unique_ptr<CpuStep> make_add_step(const Lowering& lowering, int node, kernels::CpuIsa isa) {
  return std::make_unique<PairStep<kernels::AddParams, kernels::cpu_add_u8>>(
      lowering, node, isa, lowering.elementwise_shape(node, 0), lowering.add_params(node));
}

std::unique_ptr<CpuStep> make_mul_step(const Lowering& lowering, int node, kernels::CpuIsa isa) {
  return std::make_unique<PairStep<kernels::MulParams, kernels::cpu_mul_u8>>(
      lowering, node, isa, lowering.mul_shape(node), lowering.mul_params(node));
}

}  // namespace octet
