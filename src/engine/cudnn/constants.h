// Weights, multipliers and biases of a conv2d or linear on the device, padded with zeros to whole lanes.
#pragma once

#include <cstdint>

#include "kernels/conv2d_int8/conv2d_int8.h"
#include "src/cuda/memory.h"
#include "src/cuda/stream.h"

namespace octet {

class CudnnConstants {
 public:
  /// [lanes_out, R, S, lanes_in] codes; multiplier and bias [lanes_out]; the residual's multiplier [1]. Waits for the
  /// upload.
  CudnnConstants(const kernels::Conv2dShape& shape, const kernels::Conv2dWeights& weights, float residual_multiplier,
                 int lanes_in, int lanes_out, const Stream& stream);
  const int8_t* weight() const { return reinterpret_cast<const int8_t*>(memory_.data()); }
  const float* multiplier() const { return floats(); }
  const float* bias() const { return floats() + lanes_out_; }
  const float* residual_multiplier() const { return floats() + 2 * lanes_out_; }
  size_t bytes() const { return memory_.bytes(); }

 private:
  const float* floats() const { return reinterpret_cast<const float*>(memory_.data() + weight_bytes_); }

  size_t lanes_out_, weight_bytes_;  ///< weight_bytes_: rounded up, so that what follows is aligned
  DeviceBuffer memory_;
};

}  // namespace octet
