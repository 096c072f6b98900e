// Steps that compute nothing: table look-ups and copies of codes.
#include <cstring>

#include "kernels/elementwise_int8/pick_int8.h"
#include "kernels/elementwise_int8/subsample_pad_int8.h"
#include "kernels/image_int8/image_int8.h"
#include "src/engine/cpu/image_step.h"

namespace octet {
namespace {

using kernels::CpuIsa;
using kernels::Range;

class InputStep final : public ImageStep {
 public:
  InputStep(const Lowering& lowering, int node)
      : ImageStep(lowering, node, "input_table", lowering.graph.nodes[node].shape.h),
        width_(lowering.graph.nodes[node].shape.w),
        image_bytes_(lowering.graph.nodes[node].shape.elements()),
        shape_{lowering.graph.nodes[node].shape.c, lowering.output_stride(node)} {
    for (int c = 0; c < shape_.channels; ++c) {
      const std::vector<uint8_t> table = input_table(lowering.graph, c);
      tables_.insert(tables_.end(), table.begin(), table.end());
    }
  }

 private:
  void run_image(const StepData& data, int image, Range rows) const override {
    kernels::quantize_image(shape_, {rows.begin * width_, rows.end * width_}, tables_.data(),
                            data.inputs[0] + image_bytes_ * image, output(data, image));
  }
  int width_;
  size_t image_bytes_;
  kernels::ImageShape shape_;
  std::vector<uint8_t> tables_;
};

// Rows are the units.
class LookupStep final : public ImageStep {
 public:
  LookupStep(const Lowering& lowering, int node, CpuIsa isa)
      : ImageStep(lowering, node, kernel_name("lookup", isa), lowering.graph.nodes[node].shape.h),
        row_bytes_(static_cast<long>(lowering.graph.nodes[node].shape.w) * lowering.output_stride(node)),
        table_(lowering.lookup_table(node)),
        isa_(isa) {}

 private:
  void run_image(const StepData& data, int image, Range rows) const override {
    const long first = rows.begin * row_bytes_, count = (rows.end - rows.begin) * row_bytes_;
    kernels::cpu_lookup_u8(isa_, table_, input(data, 0, image) + first, count, output(data, image) + first);
  }
  long row_bytes_;
  kernels::LookupTable table_;
  CpuIsa isa_;
};

class SubsamplePadStep final : public ImageStep {
 public:
  SubsamplePadStep(const Lowering& lowering, int node)
      : ImageStep(lowering, node, "subsample_pad", 1),
        shape_(lowering.subsample_pad_shape(node)),
        params_(lowering.subsample_pad_params(node)) {}

 private:
  void run_image(const StepData& data, int image, Range) const override {
    kernels::subsample_pad_int8(shape_, params_, input(data, 0, image), output(data, image));
  }
  kernels::SubsamplePadShape shape_;
  kernels::SubsamplePadParams params_;
};

class PickStep final : public ImageStep {
 public:
  PickStep(const Lowering& lowering, int node)
      : ImageStep(lowering, node, std::string(int8_op_name(lowering.graph.nodes[node].op)),
                  lowering.graph.nodes[node].shape.h),
        shape_(lowering.pick_shape(node)) {}

 private:
  void run_image(const StepData& data, int image, Range rows) const override {
    kernels::pick_int8(shape_, rows, input(data, 0, image), output(data, image));
  }
  kernels::PickShape shape_;
};

// A flatten whose input has gaps between its pixels: closes them.
class FlattenStep final : public ImageStep {
 public:
  FlattenStep(const Lowering& lowering, int node)
      : ImageStep(lowering, node, "flatten_copy", 1),
        in_(lowering.input(node, 0).shape),
        in_stride_(lowering.stride(in_.c)) {}

 private:
  void run_image(const StepData& data, int image, Range) const override {
    uint8_t* out = output(data, image);
    for (ptrdiff_t pixel = 0; pixel < static_cast<ptrdiff_t>(in_.h) * in_.w; ++pixel) {
      std::memcpy(out + pixel * in_.c, input(data, 0, image) + pixel * in_stride_, in_.c);
    }
  }
  Shape in_;
  ptrdiff_t in_stride_;
};

}  // namespace

std::unique_ptr<CpuStep> make_input_step(const Lowering& lowering, int node) {
  return std::make_unique<InputStep>(lowering, node);
}

std::unique_ptr<CpuStep> make_lookup_step(const Lowering& lowering, int node, kernels::CpuIsa isa) {
  return std::make_unique<LookupStep>(lowering, node, isa);
}

std::unique_ptr<CpuStep> make_subsample_pad_step(const Lowering& lowering, int node) {
  return std::make_unique<SubsamplePadStep>(lowering, node);
}

std::unique_ptr<CpuStep> make_pick_step(const Lowering& lowering, int node) {
  return std::make_unique<PickStep>(lowering, node);
}

std::unique_ptr<CpuStep> make_flatten_step(const Lowering& lowering, int node) {
  return std::make_unique<FlattenStep>(lowering, node);
}

}  // namespace octet
