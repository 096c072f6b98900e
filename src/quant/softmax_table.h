// The exponentials of a softmax on codes: made once, in double, from the scale of the edge it reads.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/quantize.h"

namespace octet {

/// [256]: rint(exp(-d * x.scale) * kExponentialOne), by how far a code lies below the largest of its group.
std::vector<int32_t> softmax_table(const QParams& x);

}  // namespace octet
