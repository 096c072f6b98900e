#include "kernels/bilinear_int8/cpu_bilinear_int8.h"
#include "kernels/pool_int8/cpu_pool_int8.h"
#include "src/engine/cpu/image_step.h"

namespace octet {
namespace {

using kernels::CpuIsa;
using kernels::Range;

class MaxPoolStep final : public ImageStep {
 public:
  MaxPoolStep(const Lowering& lowering, int node, CpuIsa isa)
      : ImageStep(lowering, node, kernel_name("max_pool", isa), lowering.graph.nodes[node].shape.h),
        shape_(lowering.pool_shape(node)),
        params_(lowering.max_pool_params(node)),
        isa_(isa) {}

 private:
  void run_image(const StepData& data, int image, Range rows) const override {
    kernels::cpu_max_pool_u8(isa_, shape_, params_, rows, input(data, 0, image), output(data, image));
  }
  kernels::PoolShape shape_;
  kernels::MaxPoolParams params_;
  CpuIsa isa_;
};

// Output rows are the units; when there is only one, blocks of channels.
class AvgPoolStep final : public ImageStep {
 public:
  AvgPoolStep(const Lowering& lowering, int node, CpuIsa isa)
      : ImageStep(lowering, node, kernel_name("avg_pool", isa), units(lowering.graph.nodes[node].shape)),
        shape_(lowering.pool_shape(node)),
        params_(lowering.avg_pool_params(node)),
        isa_(isa) {}

 private:
  static constexpr int kChannelBlock = 256;
  static int units(const Shape& out) { return out.h > 1 ? out.h : (out.c + kChannelBlock - 1) / kChannelBlock; }
  void run_image(const StepData& data, int image, Range units) const override {
    const int channels = shape_.channels;
    const kernels::AvgPoolPart part =
        shape_.out_h > 1 ? kernels::AvgPoolPart{units, {0, channels}}
                         : kernels::AvgPoolPart{
                               {0, 1}, {units.begin * kChannelBlock, std::min(units.end * kChannelBlock, channels)}};
    kernels::cpu_avg_pool_u8(isa_, shape_, params_, part, input(data, 0, image), output(data, image));
  }
  kernels::PoolShape shape_;
  kernels::AvgPoolParams params_;
  CpuIsa isa_;
};

// Rows are the units.
class BilinearStep final : public ImageStep {
 public:
  BilinearStep(const Lowering& lowering, int node, CpuIsa isa)
      : ImageStep(lowering, node, kernel_name("resize_bilinear", isa), lowering.graph.nodes[node].shape.h),
        shape_(lowering.bilinear_shape(node)),
        params_(lowering.bilinear_params(node)),
        isa_(isa) {}

 private:
  void run_image(const StepData& data, int image, Range rows) const override {
    kernels::cpu_bilinear_u8(isa_, shape_, params_, rows, input(data, 0, image), output(data, image));
  }
  kernels::BilinearShape shape_;
  kernels::BilinearParams params_;
  CpuIsa isa_;
};

}  // namespace

std::unique_ptr<CpuStep> make_max_pool_step(const Lowering& lowering, int node, kernels::CpuIsa isa) {
  return std::make_unique<MaxPoolStep>(lowering, node, isa);
}

std::unique_ptr<CpuStep> make_avg_pool_step(const Lowering& lowering, int node, kernels::CpuIsa isa) {
  return std::make_unique<AvgPoolStep>(lowering, node, isa);
}

std::unique_ptr<CpuStep> make_bilinear_step(const Lowering& lowering, int node, kernels::CpuIsa isa) {
  return std::make_unique<BilinearStep>(lowering, node, isa);
}

}  // namespace octet
