#include <algorithm>

#include "kernels/softmax_int8/softmax_int8.h"

namespace octet::kernels {
namespace {

template <typename Code>
void softmax(const SoftmaxShape& s, const SoftmaxParams& params, const Code* x, void* y) {
  for (int pixel = 0; pixel < s.pixels; ++pixel) {
    for (int group = 0; group < s.groups; ++group) {
      const Code* from = x + static_cast<ptrdiff_t>(pixel) * s.x_stride + group * s.channels;
      const ptrdiff_t to = static_cast<ptrdiff_t>(pixel) * s.y_stride + group * s.channels;
      const Code largest = *std::max_element(from, from + s.channels);
      int32_t sum = 0;
      for (int c = 0; c < s.channels; ++c) sum += params.exponential[largest - from[c]];
      for (int c = 0; c < s.channels; ++c) {
        const float share = static_cast<float>(params.exponential[largest - from[c]]) / static_cast<float>(sum);
        store_result(share * params.multiplier, params.y, y, to + c);
      }
    }
  }
}

}  // namespace

void softmax_int8_reference(const SoftmaxShape& shape, const SoftmaxParams& params, const void* x, void* y) {
  if (params.x_is_signed) {
    softmax(shape, params, static_cast<const int8_t*>(x), y);
  } else {
    softmax(shape, params, static_cast<const uint8_t*>(x), y);
  }
}

}  // namespace octet::kernels
