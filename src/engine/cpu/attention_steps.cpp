#include "kernels/matmul_int8/cpu_matmul_int8.h"
#include "kernels/softmax_int8/cpu_softmax_int8.h"
#include "src/engine/cpu/image_step.h"

namespace octet {
namespace {

using kernels::CpuIsa;
using kernels::Range;

// Needs scratch, which steps of rows do not.
class MatmulStep final : public CpuStep {
 public:
  MatmulStep(const Lowering& lowering, int node, CpuIsa isa)
      : shape_(lowering.matmul_shape(node)), params_(lowering.matmul_params(node)), isa_(isa) {}
  std::string kernel() const override { return kernel_name("matmul", isa_); }
  size_t workspace_bytes() const override { return kernels::cpu_matmul_workspace(shape_); }
  int tasks(int images) const override { return images * kernels::cpu_matmul_units(shape_); }
  void run(const StepData& data, Range tasks, void* workspace) const override {
    const ptrdiff_t y_element = params_.y.float_output ? sizeof(float) : 1;
    const int units = kernels::cpu_matmul_units(shape_);
    for (int task = tasks.begin; task < tasks.end;) {
      const ptrdiff_t image = task / units;
      const int first = task % units, count = std::min(units - first, tasks.end - task);
      kernels::cpu_matmul_u8(
          isa_, shape_, params_, {first, first + count}, data.inputs[0] + image * shape_.rows * shape_.a_stride,
          data.inputs[1] + image * shape_.b_rows() * shape_.b_stride,
          static_cast<uint8_t*>(data.output) + image * shape_.rows * shape_.y_stride * y_element, workspace);
      task += count;
    }
  }

 private:
  kernels::MatmulShape shape_;
  kernels::MatmulParams params_;
  CpuIsa isa_;
};

// Rows are the units.
class SoftmaxStep final : public ImageStep {
 public:
  SoftmaxStep(const Lowering& lowering, int node, CpuIsa isa)
      : ImageStep(lowering, node, kernel_name("softmax", isa), lowering.graph.nodes[node].shape.h),
        width_(lowering.graph.nodes[node].shape.w),
        shape_(lowering.softmax_shape(node)),
        params_(lowering.softmax_params(node)),
        isa_(isa) {}

 private:
  void run_image(const StepData& data, int image, Range rows) const override {
    kernels::cpu_softmax_u8(isa_, shape_, params_, {rows.begin * width_, rows.end * width_}, input(data, 0, image),
                            output(data, image));
  }
  int width_;
  kernels::SoftmaxShape shape_;
  kernels::SoftmaxParams params_;
  CpuIsa isa_;
};

}  // namespace

std::unique_ptr<CpuStep> make_matmul_step(const Lowering& lowering, int node, CpuIsa isa) {
  return std::make_unique<MatmulStep>(lowering, node, isa);
}

std::unique_ptr<CpuStep> make_softmax_step(const Lowering& lowering, int node, CpuIsa isa) {
  return std::make_unique<SoftmaxStep>(lowering, node, isa);
}

}  // namespace octet
