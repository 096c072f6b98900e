// Observers on the GPU: what they see stays there. The definitions are Observer of src/quant and edge_quantizer.h;
// every bit is the same.
#pragma once

#include "kernels/activation.h"
#include "kernels/cuda_stream.h"
#include "kernels/observe/edge_quantizer.h"
#include "kernels/observe/histogram_bins.h"
#include "kernels/value_type.h"

namespace octet::kernels {

/// Values on the device in flat memory. What counts is their value after the activation, but for NaN and infinity.
struct ObservedValues {
  const void* x = nullptr;  ///< [count]
  long count = 0;
  ValueType type = ValueType::float32;
  Clamp activation;
};

/// The edge's range follows the smallest and the largest value, and its qparams the range, in one launch. NaN,
/// infinity and magnitudes beyond 1e30 set edge->not_finite instead.
void cuda_observe(const ObservedValues& values, EdgeQuantizer* edge, CudaStream stream);

/// Histogram of an edge in device memory, for calibration.
struct EdgeHistogram {
  RunningRange range;
  int32_t not_finite = 0;       ///< as in EdgeQuantizer; nothing is counted once it is set
  Bins bins{0, 0, 0};           ///< of `counts`; count 0: none yet
  Bins wider{0, 0, kEdgeBins};  ///< what the latest range needs
  ObserverBlocks blocks;
  unsigned long long counts[kEdgeBins] = {};
};

/// Widens the bins where the values need it, and counts them; three launches.
void cuda_count(const ObservedValues& values, EdgeHistogram* histogram, CudaStream stream);

}  // namespace octet::kernels
