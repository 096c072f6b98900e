#include "kernels/elementwise_int8/elementwise_int8.h"

namespace octet::kernels {
namespace {

int32_t centred_integer(const void* data, ptrdiff_t index, const CodeInput& edge) {
  return edge.is_signed ? centred_code<int8_t>(data, index, edge.zero_point)
                        : centred_code<uint8_t>(data, index, edge.zero_point);
}

float centred(const void* data, ptrdiff_t index, const CodeInput& edge) {
  return static_cast<float>(centred_integer(data, index, edge));
}

// Calls body(x index, other index, y index) for every element.
template <typename Body>
void for_each_element(const ElementwiseShape& shape, const Body& body) {
  for (ptrdiff_t pixel = 0; pixel < shape.pixels; ++pixel) {
    const ptrdiff_t other = shape.other_is_pixel ? 0 : pixel * shape.other_stride;
    for (ptrdiff_t c = 0; c < shape.channels; ++c) {
      body(pixel * shape.x_stride + c, other + c, pixel * shape.y_stride + c);
    }
  }
}

}  // namespace

void requantize_int8_reference(const ElementwiseShape& shape, const RequantizeParams& params, const void* x, void* y) {
  for_each_element(shape, [&](ptrdiff_t xi, ptrdiff_t, ptrdiff_t yi) {
    store_result(centred(x, xi, params.x) * params.multiplier, params.y, y, yi);
  });
}

void add_int8_reference(const ElementwiseShape& shape, const AddParams& params, const void* x, const void* other,
                        void* y) {
  for_each_element(shape, [&](ptrdiff_t xi, ptrdiff_t oi, ptrdiff_t yi) {
    const float t = centred(x, xi, params.x) * params.x_multiplier;
    store_result(fmaf(centred(other, oi, params.other), params.other_multiplier, t), params.y, y, yi);
  });
}

void mul_int8_reference(const ElementwiseShape& shape, const MulParams& params, const void* x, const void* other,
                        void* y) {
  for_each_element(shape, [&](ptrdiff_t xi, ptrdiff_t oi, ptrdiff_t yi) {
    const int32_t product = centred_integer(x, xi, params.x) * centred_integer(other, oi, params.other);
    store_result(static_cast<float>(product) * params.multiplier, params.y, y, yi);
  });
}

}  // namespace octet::kernels
