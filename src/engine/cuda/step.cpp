// SPDX-License-Identifier: Apache-2.0
// The kernels of the cuda engine for single nodes: make_cuda_step() is the table of operators.
#include "src/engine/cuda/step.h"

#include <fmt/format.h>

#include <cstring>
#include <set>
#include <string_view>

#include "kernels/operators/attention.h"
#include "kernels/operators/bilinear.h"
#include "kernels/operators/copies.h"
#include "kernels/operators/lookup.h"
#include "kernels/operators/pool.h"

namespace octet {
namespace {

long pixels_of(const Shape& shape) { return static_cast<long>(shape.h) * shape.w; }

uint8_t* output_of(const CudaStepData& data) { return static_cast<uint8_t*>(data.output); }

/// Binds shape and parameters to a kernel of one input, called with {images, x, y}.
template <auto kKernel, class Shape, class Params>
CudaKernel one_input(std::string_view name, const Shape& shape, const Params& params) {
  return {std::string(name), [=](const CudaStepData& data, const uint8_t*, CudaStream stream) {
            kKernel(shape, params, {data.images, data.inputs[0], data.output}, stream);
          }};
}

/// Binds shape and parameters to a kernel of two inputs, called with {images, a, b, y}.
template <auto kKernel, class Shape, class Params>
CudaKernel two_inputs(std::string_view name, const Shape& shape, const Params& params) {
  return {std::string(name), [=](const CudaStepData& data, const uint8_t*, CudaStream stream) {
            kKernel(shape, params, {data.images, data.inputs[0], data.inputs[1], data.output}, stream);
          }};
}

/// Looks pixels up in one table of 256 codes for each channel.
CudaKernel input_kernel(std::string_view name, const Lowering& lowering, int node) {
  const Shape& image = lowering.graph.nodes[node].shape;
  const kernels::ImageShape shape{image.c, lowering.output_stride(node)};
  std::vector<uint8_t> tables;  // [channels, 256]
  for (int c = 0; c < shape.channels; ++c) {
    const std::vector<uint8_t> table = input_table(lowering.graph, c);
    tables.insert(tables.end(), table.begin(), table.end());
  }
  return {std::string(name),
          [shape, pixels = pixels_of(image)](const CudaStepData& data, const uint8_t* tables, CudaStream stream) {
            kernels::cuda_quantize_image(shape, pixels * data.images, tables, data.inputs[0], output_of(data), stream);
          },
          std::make_shared<SharedConstants>("input tables", [tables] { return tables; })};
}

CudaKernel avg_pool_kernel(std::string_view name, const kernels::PoolShape& shape,
                           const kernels::AvgPoolParams& params) {
  return {std::string(name),
          [=](const CudaStepData& data, const uint8_t*, CudaStream stream) {
            kernels::cuda_avg_pool_int8(shape, params, {data.images, data.inputs[0], data.output, data.zeroed}, stream);
          },
          nullptr, [shape](int images) { return kernels::cuda_avg_pool_workspace(shape, images); }};
}

CudaKernel softmax_kernel(std::string_view name, const kernels::SoftmaxShape& shape,
                          const kernels::SoftmaxParams& params) {
  return {std::string(name), [=](const CudaStepData& data, const uint8_t*, CudaStream stream) {
            kernels::SoftmaxShape of_batch = shape;
            of_batch.pixels *= data.images;
            kernels::cuda_softmax_int8(of_batch, params, data.inputs[0], data.output, stream);
          }};
}

/// requantize, and concat: one launch an input.
CudaKernel requantize_kernel(std::string_view name, const Lowering& lowering, int node) {
  std::vector<std::pair<kernels::ElementwiseShape, kernels::RequantizeParams>> inputs;
  for (size_t i = 0; i < lowering.graph.nodes[node].inputs.size(); ++i)
    inputs.emplace_back(lowering.elementwise_shape(node, i), lowering.requantize_params(node, i));
  return {std::string(name), [inputs](const CudaStepData& data, const uint8_t*, CudaStream stream) {
            uint8_t* y = output_of(data);
            for (size_t i = 0; i < inputs.size(); ++i) {
              const auto& [shape, params] = inputs[i];
              kernels::cuda_requantize_int8(shape, params, {data.images, data.inputs[i], nullptr, y}, stream);
              y += shape.channels * (params.y.float_output ? sizeof(float) : 1);
            }
          }};
}

CudaKernel prelu_kernel(std::string_view name, const Lowering& lowering, int node) {
  const std::vector<float> slopes = lowering.prelu_slopes(node);
  std::vector<uint8_t> bytes(slopes.size() * sizeof(float));
  std::memcpy(bytes.data(), slopes.data(), bytes.size());
  return {std::string(name),
          [shape = lowering.elementwise_shape(node, 0), params = lowering.prelu_params(node)](
              const CudaStepData& data, const uint8_t* slopes, CudaStream stream) {
            kernels::cuda_prelu_int8(shape, params, reinterpret_cast<const float*>(slopes),
                                     {data.images, data.inputs[0], nullptr, data.output}, stream);
          },
          std::make_shared<SharedConstants>("slopes", [bytes] { return bytes; })};
}

CudaKernel lookup_kernel(std::string_view name, const Lowering& lowering, int node) {
  const int stride = lowering.output_stride(node);
  const long image_bytes = pixels_of(lowering.graph.nodes[node].shape) * stride;
  if (lowering.graph.nodes[node].groups > 1) {
    return {"channel_lookup",
            [image_bytes, stride](const CudaStepData& data, const uint8_t* tables, CudaStream stream) {
              kernels::cuda_channel_lookup_int8(tables, stride, data.inputs[0], image_bytes * data.images,
                                                output_of(data), stream);
            },
            std::make_shared<SharedConstants>("tables", [tables = lowering.channel_tables(node)] { return tables; })};
  }
  return {std::string(name), [image_bytes, table = lowering.lookup_table(node)](const CudaStepData& data,
                                                                                const uint8_t*, CudaStream stream) {
            kernels::cuda_lookup_int8(table, data.inputs[0], image_bytes * data.images, output_of(data), stream);
          }};
}

CudaKernel subsample_pad_kernel(std::string_view name, const Lowering& lowering, int node) {
  const kernels::SubsamplePadShape shape = lowering.subsample_pad_shape(node);
  const long x_image_stride = pixels_of(lowering.input(node, 0).shape) * shape.in_stride;
  return {std::string(name), [shape, x_image_stride, params = lowering.subsample_pad_params(node)](
                                 const CudaStepData& data, const uint8_t*, CudaStream stream) {
            kernels::cuda_subsample_pad_int8(shape, params,
                                             {data.images, x_image_stride, data.inputs[0], output_of(data)}, stream);
          }};
}

CudaKernel pick_kernel(std::string_view name, const Lowering& lowering, int node) {
  const kernels::PickShape shape = lowering.pick_shape(node);
  const long x_image_stride = pixels_of(lowering.input(node, 0).shape) * shape.in_stride;
  return {std::string(name), [=](const CudaStepData& data, const uint8_t*, CudaStream stream) {
            kernels::cuda_pick_int8(shape, {data.images, x_image_stride, data.inputs[0], output_of(data)}, stream);
          }};
}

/// Closes the gaps between the pixels of a flatten's input.
CudaKernel flatten_kernel(std::string_view name, const Lowering& lowering, int node) {
  const Shape& in = lowering.input(node, 0).shape;
  kernels::CopyCodesShape shape;
  shape.pixels = static_cast<int>(pixels_of(in));
  shape.channels = shape.y_stride = in.c;
  shape.x_stride = lowering.stride(in.c);
  shape.x_image_stride = pixels_of(in) * shape.x_stride;
  shape.y_image_stride = lowering.output_stride(node);
  return {std::string(name), [shape](const CudaStepData& data, const uint8_t*, CudaStream stream) {
            kernels::CopyCodesShape of_batch = shape;
            of_batch.images = data.images;
            kernels::cuda_copy_codes(of_batch, data.inputs[0], data.output, stream);
          }};
}

}  // namespace

std::unique_ptr<CudaStep> make_cuda_step(const Lowering& lowering, int node, const std::string& kernels) {
  const Lowering& l = lowering;
  const std::string_view op = int8_op_name(l.graph.nodes[node].op);
  const auto step = [](CudaKernel kernel) { return std::make_unique<KernelStep>(std::move(kernel)); };
  switch (l.graph.nodes[node].op) {
    case Int8Op::input:
      return step(input_kernel("input_table", l, node));
    case Int8Op::conv2d:
    case Int8Op::linear:
      return make_cuda_conv_step(l, node, kernels);
    case Int8Op::add:
      return step(two_inputs<kernels::cuda_add_int8>(op, l.elementwise_shape(node, 0), l.add_params(node)));
    case Int8Op::mul:
      return step(two_inputs<kernels::cuda_mul_int8>(op, l.mul_shape(node), l.mul_params(node)));
    case Int8Op::concat:
    case Int8Op::requantize:
      return step(requantize_kernel(op, l, node));
    case Int8Op::max_pool:
      return step(one_input<kernels::cuda_max_pool_int8>(op, l.pool_shape(node), l.max_pool_params(node)));
    case Int8Op::avg_pool:
    case Int8Op::global_avg_pool:
      return step(avg_pool_kernel("avg_pool", l.pool_shape(node), l.avg_pool_params(node)));
    case Int8Op::resize_bilinear:
      return step(one_input<kernels::cuda_bilinear_int8>(op, l.bilinear_shape(node), l.bilinear_params(node)));
    case Int8Op::matmul:
      return step(two_inputs<kernels::cuda_matmul_int8>(op, l.matmul_shape(node), l.matmul_params(node)));
    case Int8Op::softmax:
      return step(softmax_kernel(op, l.softmax_shape(node), l.softmax_params(node)));
    case Int8Op::prelu:
      return step(prelu_kernel(op, l, node));
    case Int8Op::lookup:
      return step(lookup_kernel(op, l, node));
    case Int8Op::subsample_pad:
      return step(subsample_pad_kernel(op, l, node));
    case Int8Op::slice:
    case Int8Op::resize:
    case Int8Op::channel_shuffle:
    case Int8Op::depth_to_space:
      return step(pick_kernel(op, l, node));
    case Int8Op::flatten:
      return l.flatten_is_alias(node) ? nullptr : step(flatten_kernel("flatten_copy", l, node));
  }
  throw no_step(l.graph.nodes[node], "cuda");
}

size_t distinct_constant_bytes(const std::vector<const CudaStep*>& steps) {
  size_t bytes = 0;
  std::set<const void*> counted;
  for (const CudaStep* step : steps) {
    if (step == nullptr) continue;
    const void* shared = step->constants();
    if (shared == nullptr || counted.insert(shared).second) bytes += step->constant_bytes();
  }
  return bytes;
}

std::shared_ptr<const DeviceBuffer> SharedConstants::upload(const Stream& stream) {
  std::shared_ptr<const DeviceBuffer> constants = uploaded_.lock();
  if (!constants) {
    constants = std::make_shared<const DeviceBuffer>(to_device(pack_(), what_, stream.get()));
    uploaded_ = constants;
  }
  return constants;
}

void WorkSpace::make_room(const CudaStep& step, int images, const Stream& stream) {
  if (const size_t bytes = step.scratch_bytes(images); bytes > scratch_.bytes()) {
    scratch_ = DeviceBuffer(bytes, fmt::format("work space of {} images", images));
    ++moves_;
  }
  if (const size_t bytes = step.zeroed_bytes(images); bytes > zeroed_.bytes()) {
    DeviceBuffer zeros(bytes, fmt::format("partial sums of {} images", images));
    fill_device(zeros.data(), 0, bytes, stream.get());
    zeroed_ = std::move(zeros);
    ++moves_;
  }
}

}  // namespace octet
