// SPDX-License-Identifier: Apache-2.0
// What a moving average of ranges takes of a batch that reaches much further than those before it. For host and device.
#pragma once

#include <algorithm>

#include "kernels/training/observe.h"

namespace octet::kernels {

/// How much further than the running range a batch may reach.
inline constexpr double kBatchReach = 2;

/// Returns the batch's range as follow() is to take it with that averaging: neither end lies further from zero than
/// kBatchReach times the further end of the running range. One image in a thousand may reach a thousand times as far as
/// the others, and then decides a mean of maxima alone; limited so, the batches that hold it (at 128 images one in
/// eight) widen the range by a sixth. A range that has to grow still does, by the share `averaging` of itself a batch:
/// tenfold in 230 batches at 0.01. The batch's own range is returned where there is none to compare it with, or only
/// zeros, and without averaging, which keeps the min and max of all batches.
///
/// Worked: a running range of [-1, 4] takes [-20, 6] as [-8, 6].
OCTET_HOST_DEVICE inline ValueRange limited_range(const RunningRange& s, const ValueRange& batch, double averaging) {
  const double reach = kBatchReach * std::max(-s.lo, s.hi);
  if (averaging == 0 || s.seen == 0 || !(reach > 0)) return batch;
  const auto most = static_cast<float>(reach);
  return {std::min(std::max(batch.lo, -most), most), std::min(std::max(batch.hi, -most), most), batch.finite};
}

}  // namespace octet::kernels
