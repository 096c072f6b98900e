// The codes that a weight may take.
#pragma once

#include "kernels/quantize.h"

namespace octet {

/// [lowest, highest] with lowest < 0 < highest; zero is code 0.
struct WeightCodes {
  int8_t lowest = -127, highest = 127;

  OCTET_HOST_DEVICE QParams qparams(float scale) const { return {scale, 0, lowest, highest}; }
  bool operator==(const WeightCodes&) const = default;
};

}  // namespace octet
