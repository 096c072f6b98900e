#include "kernels/observe/cuda_observe.h"
#include "kernels/observe/cuda_range.cuh"

namespace octet::kernels {
namespace {

constexpr int kThreads = 512, kBlocks = 512;

/// Finds the bins that hold the new range.
struct FindBins {
  EdgeHistogram* histogram;

  __device__ ObserverBlocks& blocks() const { return histogram->blocks; }
  __device__ void take(const ValueRange& batch) const {
    EdgeHistogram& h = *histogram;
    if (!batch.finite) h.not_finite = 1;
    if (h.not_finite != 0) return;
    h.range = follow(h.range, batch, 0);
    const int exponent = h.bins.count == 0 ? kSmallestExponent : ilogbf(h.bins.width);
    h.wider = bins_for(h.range.lo, h.range.hi, exponent, kEdgeBins);
  }
};

/// One block: moves the counts into the wider bins.
__global__ void __launch_bounds__(kThreads) widen_kernel(EdgeHistogram* histogram) {
  EdgeHistogram& h = *histogram;
  const Bins old = h.bins, wider = h.wider;
  const bool same = old.count != 0 && old.width == wider.width && old.first == wider.first;
  if (h.not_finite != 0 || same) return;
  __shared__ unsigned long long counts[kEdgeBins];
  for (int i = threadIdx.x; i < kEdgeBins; i += kThreads) counts[i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < old.count; i += kThreads) {
    if (h.counts[i] != 0) atomicAdd(&counts[bin_within(old, i, wider)], h.counts[i]);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kEdgeBins; i += kThreads) h.counts[i] = counts[i];
  if (threadIdx.x == 0) h.bins = wider;
}

template <class T, bool kWide>
__global__ void __launch_bounds__(kThreads) count_kernel(ObservedValues values, EdgeHistogram* histogram) {
  constexpr int kValues = 8;
  if (histogram->not_finite != 0) return;
  __shared__ uint32_t counts[kEdgeBins];
  for (int i = threadIdx.x; i < kEdgeBins; i += kThreads) counts[i] = 0;
  __syncthreads();
  const T* x = static_cast<const T*>(values.x);
  const int first = histogram->bins.first;
  const float inverse_width = 1.0f / histogram->bins.width;
  const long stride = static_cast<long>(kThreads) * kValues * gridDim.x;
  uint32_t zeros = 0;  // half of all values may be zero after ReLU: they do not queue for one counter
  for (long at = (static_cast<long>(blockIdx.x) * kThreads + threadIdx.x) * kValues; at < values.count; at += stride) {
    const Pack<T, kValues> pack = load<kValues, kWide>(x + at, values.count - at);
    for (int i = 0; i < kValues && at + i < values.count; ++i) {
      const int bin = bin_of(values.activation(widen(pack.value[i])), inverse_width, first);
      if (bin == -first) {
        ++zeros;
      } else {
        atomicAdd(&counts[bin], 1u);
      }
    }
  }
  if (zeros != 0) atomicAdd(&counts[-first], zeros);
  __syncthreads();
  for (int i = threadIdx.x; i < kEdgeBins; i += kThreads) {
    if (counts[i] != 0) atomicAdd(&histogram->counts[i], static_cast<unsigned long long>(counts[i]));
  }
}

}  // namespace

void cuda_count(const ObservedValues& values, EdgeHistogram* histogram, CudaStream stream) {
  if (values.count == 0) return;
  launch_range(values, FindBins{histogram}, stream);
  check_launch("histogram's range");
  widen_kernel<<<1, kThreads, 0, stream>>>(histogram);
  check_launch("histogram's widening");
  const unsigned blocks = std::min<unsigned>(blocks_for(values.count, kThreads * 8), kBlocks);
  with_type(values.type, [&](auto type) {
    using T = decltype(type);
    if (is_aligned(values.x)) {
      count_kernel<T, true><<<blocks, kThreads, 0, stream>>>(values, histogram);
    } else {
      count_kernel<T, false><<<blocks, kThreads, 0, stream>>>(values, histogram);
    }
  });
  check_launch("histogram");
}

}  // namespace octet::kernels
