#include "kernels/elementwise_int8/elementwise_int8.h"

namespace octet::kernels {
namespace {

float centred(const void* data, ptrdiff_t index, const CodeInput& edge) {
  return static_cast<float>(edge.is_signed ? centred_code<int8_t>(data, index, edge.zero_point)
                                           : centred_code<uint8_t>(data, index, edge.zero_point));
}

// Calls body(x index, other index, y index) for every element.
template <typename Body>
void for_each_element(const ElementwiseShape& shape, const Body& body) {
  for (ptrdiff_t pixel = 0; pixel < shape.pixels; ++pixel) {
    for (ptrdiff_t c = 0; c < shape.channels; ++c) {
      body(pixel * shape.x_stride + c, pixel * shape.other_stride + c, pixel * shape.y_stride + c);
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

}  // namespace octet::kernels
