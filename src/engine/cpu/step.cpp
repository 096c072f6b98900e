// SPDX-License-Identifier: Apache-2.0
// The kernels of the cpu engine: make_cpu_step() is the table of operators.
#include "src/engine/cpu/cpu_program.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "kernels/operators/attention.h"
#include "kernels/operators/bilinear.h"
#include "kernels/operators/copies.h"
#include "kernels/operators/elementwise.h"
#include "kernels/operators/lookup.h"
#include "kernels/operators/pool.h"

namespace octet {
namespace {

using kernels::CpuIsa;
using kernels::Range;

/// One image's tensors, and the scratch of the thread that works on it.
struct ImageTensors {
  const StepData& data;
  const std::vector<size_t>& input_bytes;  ///< of one image
  size_t output_bytes;                     ///< of one image
  int image;
  void* workspace;

  const uint8_t* x(size_t input = 0) const { return data.inputs[input] + input_bytes[input] * image; }
  uint8_t* y() const { return static_cast<uint8_t*>(data.output) + output_bytes * image; }
};

/// Computes the units of the range of one image.
using ImageKernel = std::function<void(const ImageTensors& image, Range units)>;

/// A step whose images are cut into `units` pieces of about the same work: output rows, blocks of channels or columns,
/// or whole images.
class ImageStep final : public CpuStep {
 public:
  ImageStep(const Lowering& lowering, int node, std::string name, int units, ImageKernel compute,
            size_t workspace_bytes = 0)
      : name_(std::move(name)), units_(units), compute_(std::move(compute)), workspace_bytes_(workspace_bytes) {
    const Int8Node& n = lowering.graph.nodes[node];
    if (n.op == Int8Op::input) input_bytes_ = {static_cast<size_t>(n.shape.elements())};
    for (const int input : n.inputs) {
      const Shape& shape = lowering.graph.nodes[input].shape;
      input_bytes_.push_back(static_cast<size_t>(shape.h) * shape.w * lowering.stride(shape.c));
    }
    output_bytes_ = static_cast<size_t>(n.shape.h) * n.shape.w * lowering.output_stride(node) *
                    (n.float_output ? sizeof(float) : 1);
  }
  std::string kernel() const override { return name_; }
  size_t workspace_bytes() const override { return workspace_bytes_; }
  int tasks(int images) const override { return images * units_; }
  void run(const StepData& data, Range tasks, void* workspace) const override {
    for (int task = tasks.begin; task < tasks.end;) {
      const int image = task / units_, first = task % units_;
      const int count = std::min(units_ - first, tasks.end - task);
      compute_({data, input_bytes_, output_bytes_, image, workspace}, {first, first + count});
      task += count;
    }
  }

 private:
  std::string name_;
  int units_;
  ImageKernel compute_;
  size_t workspace_bytes_;
  std::vector<size_t> input_bytes_;  // of one image
  size_t output_bytes_ = 0;          // of one image
};

class ConvStep final : public CpuStep {
 public:
  ConvStep(const Lowering& lowering, int node, CpuIsa isa)
      : conv_(kernels::CpuConv2d::create(lowering.conv2d_shape(node), lowering.conv2d_params(node),
                                         lowering.conv2d_weights(node), isa)),
        has_residual_(lowering.graph.nodes[node].inputs.size() > 1) {}
  std::string kernel() const override { return conv_->name() + (lookup_ ? "_lookup" : ""); }
  size_t workspace_bytes() const override { return conv_->workspace_bytes(); }
  int tasks(int images) const override { return conv_->tasks(images); }
  void run(const StepData& data, Range tasks, void* workspace) const override {
    const kernels::CpuConv2dBatch batch{data.images, data.inputs[0], has_residual_ ? data.inputs[1] : nullptr,
                                        data.output, lookup_ ? &*lookup_ : nullptr};
    conv_->run(batch, tasks.begin, tasks.end, workspace);
  }

  std::unique_ptr<CpuStep> with_lookup(const kernels::LookupTable& table) const override {
    auto step = std::make_unique<ConvStep>(*this);
    step->lookup_ = table;
    return step;
  }

 private:
  std::shared_ptr<const kernels::CpuConv2d> conv_;
  bool has_residual_;
  std::optional<kernels::LookupTable> lookup_;
};

/// Binds shape and parameters to a kernel of one input or two that computes a range of rows or of pixels.
template <auto kKernel, class Shape, class Params>
ImageKernel bound(CpuIsa isa, const Shape& shape, const Params& params) {
  return [=](const ImageTensors& image, Range range) {
    if constexpr (requires { kKernel(isa, shape, params, range, image.x(0), image.x(1), image.y()); }) {
      kKernel(isa, shape, params, range, image.x(0), image.x(1), image.y());
    } else {
      kKernel(isa, shape, params, range, image.x(), image.y());
    }
  };
}

ImageKernel input_kernel(const Lowering& lowering, int node) {
  const kernels::ImageShape shape{lowering.graph.nodes[node].shape.c, lowering.output_stride(node)};
  std::vector<uint8_t> tables;  // [channels, 256]
  for (int c = 0; c < shape.channels; ++c) {
    const std::vector<uint8_t> table = input_table(lowering.graph, c);
    tables.insert(tables.end(), table.begin(), table.end());
  }
  return [shape, tables = std::move(tables)](const ImageTensors& image, Range pixels) {
    kernels::quantize_image(shape, pixels, tables.data(), image.x(), image.y());
  };
}

/// requantize, and concat: one requantize an input.
ImageKernel requantize_kernel(const Lowering& lowering, int node, CpuIsa isa) {
  std::vector<std::pair<kernels::ElementwiseShape, kernels::RequantizeParams>> inputs;
  for (size_t i = 0; i < lowering.graph.nodes[node].inputs.size(); ++i)
    inputs.emplace_back(lowering.elementwise_shape(node, i), lowering.requantize_params(node, i));
  return [inputs = std::move(inputs), isa](const ImageTensors& image, Range pixels) {
    uint8_t* y = image.y();
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto& [shape, params] = inputs[i];
      kernels::cpu_requantize_u8(isa, shape, params, pixels, image.x(i), y);
      y += shape.channels * (params.y.float_output ? sizeof(float) : 1);
    }
  };
}

// Average pools share out output rows or, if there is only one, blocks of so many channels.
constexpr int kChannelBlock = 256;
int avg_pool_units(const Shape& y) { return y.h > 1 ? y.h : (y.c + kChannelBlock - 1) / kChannelBlock; }

ImageKernel avg_pool_kernel(const Lowering& lowering, int node, CpuIsa isa) {
  return [shape = lowering.pool_shape(node), params = lowering.avg_pool_params(node), isa](const ImageTensors& image,
                                                                                           Range units) {
    const Range channels{units.begin * kChannelBlock, std::min(units.end * kChannelBlock, shape.channels)};
    const auto part =
        shape.out_h > 1 ? kernels::AvgPoolPart{units, {0, shape.channels}} : kernels::AvgPoolPart{{0, 1}, channels};
    kernels::cpu_avg_pool_u8(isa, shape, params, part, image.x(), image.y());
  };
}

ImageKernel matmul_kernel(const Lowering& lowering, int node, CpuIsa isa) {
  return [shape = lowering.matmul_shape(node), params = lowering.matmul_params(node), isa](const ImageTensors& image,
                                                                                           Range units) {
    kernels::cpu_matmul_u8(isa, shape, params, units, image.x(0), image.x(1), image.y(), image.workspace);
  };
}

ImageKernel prelu_kernel(const Lowering& lowering, int node, CpuIsa isa) {
  return [shape = lowering.elementwise_shape(node, 0), params = lowering.prelu_params(node),
          slopes = lowering.prelu_slopes(node), isa](const ImageTensors& image, Range pixels) {
    kernels::cpu_prelu_u8(isa, shape, params, slopes.data(), pixels, image.x(), image.y());
  };
}

ImageKernel lookup_kernel(const Lowering& lowering, int node, CpuIsa isa) {
  const int stride = lowering.output_stride(node);
  const long row_bytes = static_cast<long>(lowering.graph.nodes[node].shape.w) * stride;
  if (lowering.graph.nodes[node].groups > 1) {
    return [row_bytes, stride, tables = lowering.channel_tables(node)](const ImageTensors& image, Range rows) {
      const long first = rows.begin * row_bytes, count = (rows.end - rows.begin) * row_bytes;
      kernels::channel_lookup_int8(tables.data(), stride, image.x() + first, count, image.y() + first);
    };
  }
  return [row_bytes, table = lowering.lookup_table(node), isa](const ImageTensors& image, Range rows) {
    const long first = rows.begin * row_bytes, count = (rows.end - rows.begin) * row_bytes;
    kernels::cpu_lookup_u8(isa, table, image.x() + first, count, image.y() + first);
  };
}

ImageKernel subsample_pad_kernel(const Lowering& lowering, int node) {
  return [shape = lowering.subsample_pad_shape(node), params = lowering.subsample_pad_params(node)](
             const ImageTensors& image, Range) { kernels::subsample_pad_int8(shape, params, image.x(), image.y()); };
}

ImageKernel pick_kernel(const Lowering& lowering, int node) {
  return [shape = lowering.pick_shape(node)](const ImageTensors& image, Range rows) {
    kernels::pick_int8(shape, rows, image.x(), image.y());
  };
}

/// Closes the gaps between the pixels of a flatten's input.
ImageKernel flatten_kernel(const Lowering& lowering, int node) {
  const Shape in = lowering.input(node, 0).shape;
  return [in, stride = static_cast<ptrdiff_t>(lowering.stride(in.c))](const ImageTensors& image, Range) {
    for (ptrdiff_t pixel = 0; pixel < static_cast<ptrdiff_t>(in.h) * in.w; ++pixel)
      std::memcpy(image.y() + pixel * in.c, image.x() + pixel * stride, in.c);
  };
}

}  // namespace

// A row of the table is an operator with its kernel's name, what its tasks are, and the kernel.
std::unique_ptr<CpuStep> make_cpu_step(const Lowering& lowering, int node, CpuIsa isa) {
  const Int8Node& n = lowering.graph.nodes[node];
  const auto op = [&] { return std::string(int8_op_name(n.op)); };  // throws for a number that is none
  // Kernels that differ from path to path have the path's name in theirs: "max_pool_avx2".
  const auto on_path = [&](const std::string& name) {
    return name + "_" + std::string(kernels::cpu_isa_name(kernels::vector_isa(isa)));
  };
  const auto units = [&](std::string name, int count, ImageKernel compute, size_t workspace_bytes = 0) {
    return std::make_unique<ImageStep>(lowering, node, std::move(name), count, std::move(compute), workspace_bytes);
  };
  const auto rows = [&](std::string name, ImageKernel compute) { return units(std::move(name), n.shape.h, compute); };
  const auto pixels = [&](std::string name, ImageKernel compute) {  // rows, counted in pixels
    return rows(std::move(name), [compute, width = n.shape.w](const ImageTensors& image, Range range) {
      compute(image, {range.begin * width, range.end * width});
    });
  };
  const auto image = [&](std::string name, ImageKernel compute) { return units(std::move(name), 1, compute); };
  switch (n.op) {
    case Int8Op::input:
      return pixels("input_table", input_kernel(lowering, node));
    case Int8Op::conv2d:
    case Int8Op::linear:
      return std::make_unique<ConvStep>(lowering, node, isa);
    case Int8Op::add:
      return pixels(on_path(op()),
                    bound<kernels::cpu_add_u8>(isa, lowering.elementwise_shape(node, 0), lowering.add_params(node)));
    case Int8Op::mul:
      return pixels(on_path(op()),
                    bound<kernels::cpu_mul_u8>(isa, lowering.mul_shape(node), lowering.mul_params(node)));
    case Int8Op::concat:
    case Int8Op::requantize:
      return pixels(on_path(op()), requantize_kernel(lowering, node, isa));
    case Int8Op::max_pool:
      return rows(on_path(op()),
                  bound<kernels::cpu_max_pool_u8>(isa, lowering.pool_shape(node), lowering.max_pool_params(node)));
    case Int8Op::avg_pool:
    case Int8Op::global_avg_pool:
      return units(on_path("avg_pool"), avg_pool_units(n.shape), avg_pool_kernel(lowering, node, isa));
    case Int8Op::resize_bilinear:
      return rows(on_path(op()),
                  bound<kernels::cpu_bilinear_u8>(isa, lowering.bilinear_shape(node), lowering.bilinear_params(node)));
    case Int8Op::matmul: {
      const kernels::MatmulShape shape = lowering.matmul_shape(node);
      return units(on_path(op()), kernels::cpu_matmul_units(shape), matmul_kernel(lowering, node, isa),
                   kernels::cpu_matmul_workspace(shape));
    }
    case Int8Op::softmax:
      return pixels(on_path(op()),
                    bound<kernels::cpu_softmax_u8>(isa, lowering.softmax_shape(node), lowering.softmax_params(node)));
    case Int8Op::prelu:
      return pixels(on_path(op()), prelu_kernel(lowering, node, isa));
    case Int8Op::lookup:
      return rows(n.groups > 1 ? "channel_lookup" : on_path(op()), lookup_kernel(lowering, node, isa));
    case Int8Op::subsample_pad:
      return image(op(), subsample_pad_kernel(lowering, node));
    case Int8Op::slice:
    case Int8Op::resize:
    case Int8Op::channel_shuffle:
    case Int8Op::depth_to_space:
      return rows(op(), pick_kernel(lowering, node));
    case Int8Op::flatten:
      return lowering.flatten_is_alias(node) ? nullptr : image("flatten_copy", flatten_kernel(lowering, node));
  }
  throw no_step(n, "cpu");
}

}  // namespace octet
