#include "src/engine/cudnn/constants.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "src/engine/memory_plan.h"

namespace octet {

CudnnConstants::CudnnConstants(const kernels::Conv2dShape& shape, const kernels::Conv2dWeights& weights,
                               float residual_multiplier, int lanes_in, int lanes_out, const Stream& stream)
    : lanes_out_(lanes_out) {
  const size_t taps = static_cast<size_t>(shape.kernel_h) * shape.kernel_w;
  weight_bytes_ = aligned(lanes_out_ * taps * lanes_in, kDeviceAlignment);
  std::vector<uint8_t> host(weight_bytes_ + (2 * lanes_out_ + 1) * sizeof(float));
  for (size_t row = 0; row < shape.out_c * taps; ++row) {
    std::memcpy(host.data() + row * lanes_in, weights.weight + row * shape.in_c, shape.in_c);
  }
  uint8_t* floats = host.data() + weight_bytes_;
  std::memcpy(floats, weights.multiplier, shape.out_c * sizeof(float));
  std::memcpy(floats + lanes_out_ * sizeof(float), weights.bias, shape.out_c * sizeof(float));
  std::memcpy(floats + 2 * lanes_out_ * sizeof(float), &residual_multiplier, sizeof(float));
  memory_ = DeviceBuffer(host.size(), "weights");
  copy_to_device(memory_.data(), host.data(), host.size(), stream.get());
  stream.wait("uploading weights");
}

}  // namespace octet
