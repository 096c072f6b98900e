#include <cstdint>
#include <vector>

#include "kernels/inverted_residual_int8/inverted_residual_int8.h"

namespace octet::kernels {

void inverted_residual_int8_reference(const InvertedResidual& block, const void* x, const void* residual, void* y) {
  const auto run = [](const ConvNode& conv, int in_stride, const void* in) {
    Conv2dShape shape = conv.shape;
    shape.in_stride = in_stride, shape.out_stride = shape.out_c;
    std::vector<uint8_t> out(static_cast<size_t>(shape.out_h) * shape.out_w * shape.out_c);
    conv2d_int8_reference(shape, conv.params, conv.weights, in, nullptr, out.data());
    return out;
  };
  std::vector<uint8_t> hidden;
  if (block.has_expand) hidden = run(block.expand, block.expand.shape.in_stride, x);
  const std::vector<uint8_t> windows =
      run(block.depthwise, block.has_expand ? block.depthwise.shape.in_c : block.depthwise.shape.in_stride,
          block.has_expand ? hidden.data() : x);
  Conv2dShape last = block.project.shape;
  last.in_stride = last.in_c;
  conv2d_int8_reference(last, block.project.params, block.project.weights, windows.data(), residual, y);
}

}  // namespace octet::kernels
