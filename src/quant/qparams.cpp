#include <cmath>
#include <string>

#include "kernels/observe/edge_quantizer.h"
#include "src/common/error.h"
#include "src/quant/qparams.h"

namespace octet {

QParams choose_qparams(double lo, double hi, const QParams& range, bool affine) {
  if (!std::isfinite(lo) || !std::isfinite(hi) || lo > hi) {
    throw promise_error("qparams: [" + std::to_string(lo) + ", " + std::to_string(hi) +
                        "] is no range of values; was the edge observed?");
  }
  return kernels::qparams_of_range(lo, hi, range, affine);
}

}  // namespace octet
