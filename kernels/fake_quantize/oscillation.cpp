#include "kernels/fake_quantize/oscillation.h"

namespace octet::kernels {

void freeze_oscillating(const OscillatingWeights& weights, long begin, long end, float threshold) {
  for (long channel = begin; channel < end; ++channel) {
    const long first = channel * weights.per_channel;
    for (long i = first; i < first + weights.per_channel; ++i)
      follow_oscillation(weights, i, weights.scale[channel], threshold);
  }
}

}  // namespace octet::kernels
