#include <cstring>

#include "kernels/conv2d_int8/cuda/family.h"

namespace octet::kernels {

size_t cuda_constants_bytes(int channels) {
  constexpr size_t kAlign = 256;
  return (static_cast<size_t>(channels) * 12 + kAlign - 1) / kAlign * kAlign;
}

CudaChannelConstants cuda_channel_constants(const void* packed, int channels) {
  const float* multiplier = static_cast<const float*>(packed);
  return {multiplier, multiplier + channels, reinterpret_cast<const int32_t*>(multiplier + 2 * channels)};
}

std::vector<uint8_t> cuda_pack_constants(const Conv2dShape& shape, const Conv2dParams& params,
                                         const Conv2dWeights& weights, int channels, size_t weight_bytes) {
  std::vector<uint8_t> packed(cuda_constants_bytes(channels) + weight_bytes);
  std::vector<int32_t> init(shape.out_c);
  const int taps = shape.kernel_h * shape.kernel_w * (shape.in_c / shape.groups);
  for (int k = 0; k < shape.out_c; ++k) {
    int32_t sum = 0;
    for (int i = 0; i < taps; ++i) sum += weights.weight[static_cast<ptrdiff_t>(k) * taps + i];
    init[k] = -params.x.zero_point * sum;
  }
  const size_t bytes = static_cast<size_t>(shape.out_c) * 4, step = static_cast<size_t>(channels) * 4;
  std::memcpy(packed.data(), weights.multiplier, bytes);
  std::memcpy(packed.data() + step, weights.bias, bytes);
  std::memcpy(packed.data() + 2 * step, init.data(), bytes);
  return packed;
}

}  // namespace octet::kernels
