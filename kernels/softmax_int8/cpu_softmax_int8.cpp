#include "kernels/softmax_int8/cpu_softmax_int8.h"

#include "kernels/cpu_targets.h"

namespace octet::kernels {
namespace {

[[gnu::always_inline]] inline void softmax_group(const SoftmaxParams& params, const FastRounding& round, int channels,
                                                 const uint8_t* __restrict x, ptrdiff_t at, void* y) {
  uint8_t largest = 0;
  for (int c = 0; c < channels; ++c) largest = x[c] > largest ? x[c] : largest;
  const int32_t* __restrict exponential = params.exponential;
  int32_t sum = 0;
  for (int c = 0; c < channels; ++c) sum += exponential[largest - x[c]];
  const float divisor = static_cast<float>(sum), multiplier = params.multiplier;
  const auto value = [&](int c) { return static_cast<float>(exponential[largest - x[c]]) / divisor * multiplier; };
  if (params.y.float_output) {
    float* __restrict reals = static_cast<float*>(y) + at;
    for (int c = 0; c < channels; ++c) reals[c] = value(c);
  } else {
    uint8_t* __restrict codes = static_cast<uint8_t*>(y) + at;
    for (int c = 0; c < channels; ++c) codes[c] = round(value(c));
  }
}

[[gnu::always_inline]] inline void softmax_loop(const SoftmaxShape& s, const SoftmaxParams& params, Range pixels,
                                                const uint8_t* x, void* y) {
  const FastRounding round(params.y);
  for (int pixel = pixels.begin; pixel < pixels.end; ++pixel) {
    for (int group = 0; group < s.groups; ++group) {
      const int first = group * s.channels;
      softmax_group(params, round, s.channels, x + static_cast<ptrdiff_t>(pixel) * s.x_stride + first,
                    static_cast<ptrdiff_t>(pixel) * s.y_stride + first, y);
    }
  }
}

}  // namespace

OCTET_FOR_EACH_ISA(softmax, softmax_loop,
                   (const SoftmaxShape& shape, const SoftmaxParams& params, Range pixels, const uint8_t* x, void* y),
                   (shape, params, pixels, x, y))

void cpu_softmax_u8(CpuIsa isa, const SoftmaxShape& shape, const SoftmaxParams& params, Range pixels, const uint8_t* x,
                    void* y) {
  softmax_for(isa)(shape, params, pixels, x, y);
}

}  // namespace octet::kernels
