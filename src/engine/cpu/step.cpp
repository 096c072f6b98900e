#include "src/engine/cpu/step.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/elementwise_int8/cpu_elementwise_int8.h"
#include "kernels/image_int8/image_int8.h"
#include "kernels/pool_int8/cpu_pool_int8.h"

namespace octet {
namespace {

using kernels::CpuIsa;
using kernels::Range;

class ConvStep final : public CpuStep {
 public:
  ConvStep(const Lowering& lowering, int node, CpuIsa isa)
      : conv_(kernels::CpuConv2d::create(lowering.conv2d_shape(node), lowering.conv2d_params(node), isa)),
        has_residual_(lowering.graph.nodes[node].inputs.size() > 1) {}
  std::string kernel() const override { return conv_->name(); }
  size_t workspace_bytes() const override { return conv_->workspace_bytes(); }
  int tasks(int images) const override { return conv_->tasks(images); }
  void run(const StepData& data, Range tasks, void* workspace) const override {
    const kernels::CpuConv2dBatch batch{data.images, data.inputs[0], has_residual_ ? data.inputs[1] : nullptr,
                                        data.output};
    conv_->run(batch, tasks.begin, tasks.end, workspace);
  }

 private:
  std::unique_ptr<kernels::CpuConv2d> conv_;
  bool has_residual_;
};

// Steps whose images are cut into `units` equal-sized pieces of work: rows, blocks of channels, or whole images.
class ImageStep : public CpuStep {
 public:
  ImageStep(const Lowering& lowering, int node, std::string name, CpuIsa isa, int units)
      : isa_(isa), kernel_(name + "_" + std::string(kernels::cpu_isa_name(isa))), units_(units) {
    const Int8Node& n = lowering.graph.nodes[node];
    for (const int input : n.inputs) {
      const Shape& shape = lowering.graph.nodes[input].shape;
      input_bytes_.push_back(static_cast<size_t>(shape.h) * shape.w * lowering.stride(shape.c));
    }
    output_bytes_ = static_cast<size_t>(n.shape.h) * n.shape.w * lowering.output_stride(node) *
                    (n.float_output ? sizeof(float) : 1);
  }
  std::string kernel() const override { return kernel_; }
  int tasks(int images) const override { return images * units_; }
  void run(const StepData& data, Range tasks, void*) const override {
    for (int task = tasks.begin; task < tasks.end;) {
      const int image = task / units_, first = task % units_;
      const int count = std::min(units_ - first, tasks.end - task);
      run_image(data, image, {first, first + count});
      task += count;
    }
  }

 protected:
  virtual void run_image(const StepData& data, int image, Range units) const = 0;
  const uint8_t* input(const StepData& data, size_t index, int image) const {
    return data.inputs[index] + input_bytes_[index] * image;
  }
  uint8_t* output(const StepData& data, int image) const {
    return static_cast<uint8_t*>(data.output) + output_bytes_ * image;
  }
  CpuIsa isa_;

 private:
  std::string kernel_;
  int units_;
  std::vector<size_t> input_bytes_;  // of one image
  size_t output_bytes_ = 0;
};

class InputStep final : public ImageStep {
 public:
  InputStep(const Lowering& lowering, int node, CpuIsa isa)
      : ImageStep(lowering, node, "table", isa, lowering.graph.nodes[node].shape.h),
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

class MaxPoolStep final : public ImageStep {
 public:
  MaxPoolStep(const Lowering& lowering, int node, CpuIsa isa)
      : ImageStep(lowering, node, "max_pool", isa, lowering.graph.nodes[node].shape.h),
        shape_(lowering.pool_shape(node)),
        params_(lowering.max_pool_params(node)) {}

 private:
  void run_image(const StepData& data, int image, Range rows) const override {
    kernels::cpu_max_pool_u8(isa_, shape_, params_, rows, input(data, 0, image), output(data, image));
  }
  kernels::PoolShape shape_;
  kernels::MaxPoolParams params_;
};

// Output rows are the units; when there is only one, blocks of channels.
class AvgPoolStep final : public ImageStep {
 public:
  AvgPoolStep(const Lowering& lowering, int node, CpuIsa isa)
      : ImageStep(lowering, node, "avg_pool", isa, units(lowering.graph.nodes[node].shape)),
        shape_(lowering.pool_shape(node)),
        params_(lowering.avg_pool_params(node)) {}

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
};

// add, requantize and concat: rows are the units.
class RequantizeStep final : public ImageStep {
 public:
  RequantizeStep(const Lowering& lowering, int node, CpuIsa isa)
      : ImageStep(lowering, node, std::string(int8_op_name(lowering.graph.nodes[node].op)), isa,
                  lowering.graph.nodes[node].shape.h),
        width_(lowering.graph.nodes[node].shape.w) {
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
};

class AddStep final : public ImageStep {
 public:
  AddStep(const Lowering& lowering, int node, CpuIsa isa)
      : ImageStep(lowering, node, "add", isa, lowering.graph.nodes[node].shape.h),
        width_(lowering.graph.nodes[node].shape.w),
        shape_(lowering.elementwise_shape(node, 0)),
        params_(lowering.add_params(node)) {}

 private:
  void run_image(const StepData& data, int image, Range rows) const override {
    kernels::cpu_add_u8(isa_, shape_, params_, {rows.begin * width_, rows.end * width_}, input(data, 0, image),
                        input(data, 1, image), output(data, image));
  }
  int width_;
  kernels::ElementwiseShape shape_;
  kernels::AddParams params_;
};

class SubsamplePadStep final : public ImageStep {
 public:
  SubsamplePadStep(const Lowering& lowering, int node, CpuIsa isa)
      : ImageStep(lowering, node, "subsample_pad", isa, 1),
        shape_(lowering.subsample_pad_shape(node)),
        params_(lowering.subsample_pad_params(node)) {}

 private:
  void run_image(const StepData& data, int image, Range) const override {
    kernels::subsample_pad_int8(shape_, params_, input(data, 0, image), output(data, image));
  }
  kernels::SubsamplePadShape shape_;
  kernels::SubsamplePadParams params_;
};

// A flatten whose input has gaps between its pixels: closes them.
class FlattenStep final : public ImageStep {
 public:
  FlattenStep(const Lowering& lowering, int node, CpuIsa isa)
      : ImageStep(lowering, node, "flatten", isa, 1),
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

bool flatten_is_alias(const Int8Graph& graph, int node) {
  const Int8Node& n = graph.nodes[node];
  if (n.op != Int8Op::flatten) return false;
  const Shape& in = graph.nodes[n.inputs[0]].shape;
  if (in.h == 1 && in.w == 1) return true;
  return kernels::cpu_channel_stride(in.c) == in.c && kernels::cpu_channel_stride(n.shape.c) == n.shape.c;
}

std::unique_ptr<CpuStep> make_cpu_step(const Lowering& lowering, int node, CpuIsa isa) {
  switch (lowering.graph.nodes[node].op) {
    case Int8Op::input:
      return std::make_unique<InputStep>(lowering, node, isa);
    case Int8Op::conv2d:
    case Int8Op::linear:
      return std::make_unique<ConvStep>(lowering, node, isa);
    case Int8Op::add:
      return std::make_unique<AddStep>(lowering, node, isa);
    case Int8Op::concat:
    case Int8Op::requantize:
      return std::make_unique<RequantizeStep>(lowering, node, isa);
    case Int8Op::max_pool:
      return std::make_unique<MaxPoolStep>(lowering, node, isa);
    case Int8Op::avg_pool:
    case Int8Op::global_avg_pool:
      return std::make_unique<AvgPoolStep>(lowering, node, isa);
    case Int8Op::subsample_pad:
      return std::make_unique<SubsamplePadStep>(lowering, node, isa);
    case Int8Op::flatten:
      return flatten_is_alias(lowering.graph, node) ? nullptr : std::make_unique<FlattenStep>(lowering, node, isa);
  }
  return nullptr;
}

}  // namespace octet
