// Bound by memory: a thread takes 16 neighbouring channels of an output pixel where the layout allows, else 1.
#include "kernels/cuda_launch.h"
#include "kernels/cuda_overlap.h"
#include "kernels/pool_int8/cuda_pool_int8.h"
#include "kernels/pool_int8/pool_window.cuh"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kVector = 16;

template <int kCodes>
__global__ void __launch_bounds__(kThreads)
    max_pool_kernel(PoolArgs a, uint32_t flip, uint32_t clamp_min, uint32_t clamp_max) {
  wait_for_previous_kernel();
  const unsigned thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= a.threads) return;
  const unsigned pixel = thread / a.vectors;
  const int channel = thread % a.vectors * kCodes;
  const Window window(a, pixel);
  using Vector = CodeVector<kCodes>;
  Vector largest;
  for (uint32_t& word : largest.word) word = clamp_min;
  for (int r = 0; r < window.rows; ++r) {
    const uint8_t* row = window.from + static_cast<ptrdiff_t>(r) * a.s.in_w * a.s.in_stride + channel;
    for (int q = 0; q < window.columns; ++q, row += a.s.in_stride) {
      const Vector codes = Vector::load(row);
      for (int w = 0; w < Vector::kWords; ++w) largest.word[w] = __vmaxu4(largest.word[w], codes.word[w] ^ flip);
    }
  }
  for (uint32_t& word : largest.word) word = __vminu4(word, clamp_max) ^ flip;
  largest.store(a.y + static_cast<ptrdiff_t>(pixel) * a.s.out_stride + channel, a.s.channels - channel);
}

template <int kCodes>
__global__ void __launch_bounds__(kThreads) avg_pool_kernel(PoolArgs a, AverageArgs average) {
  wait_for_previous_kernel();
  const unsigned thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= a.threads) return;
  const unsigned pixel = thread / a.vectors;
  const int channel = thread % a.vectors * kCodes;
  const Window window(a, pixel);
  using Vector = CodeVector<kCodes>;
  int32_t sum[kCodes] = {};
  for (int r = 0; r < window.rows; ++r) {
    const uint8_t* row = window.from + static_cast<ptrdiff_t>(r) * a.s.in_w * a.s.in_stride + channel;
    for (int q = 0; q < window.columns; ++q, row += a.s.in_stride) {
      add_codes<kCodes>(Vector::load(row), average.x.flip, sum);
    }
  }

  const ptrdiff_t index = static_cast<ptrdiff_t>(pixel) * a.s.out_stride + channel;
  const int codes = window.rows * window.columns;
  if constexpr (kCodes > 1) {
    if (!average.float_output) {
      Vector y;
      for (int w = 0; w < Vector::kWords; ++w) {
        int32_t code[4];
#pragma unroll
        for (int lane = 0; lane < 4; ++lane) code[lane] = average.rounding(average.value(sum[4 * w + lane], codes));
        y.word[w] = pack_codes(code[0], code[1], code[2], code[3]);
      }
      y.store(a.y + index, a.s.channels - channel);
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < kCodes; ++i) {
    if (channel + i < a.s.channels) average.store(average.value(sum[i], codes), a.y, index + i);
  }
}

PoolArgs make_args(const PoolShape& s, const CudaPoolData& data, int codes) {
  const unsigned vectors = blocks_for(s.channels, codes);
  return {s, thread_count(static_cast<long>(data.images) * s.out_h * s.out_w * vectors, "pooling"), vectors,
          static_cast<const uint8_t*>(data.x), static_cast<uint8_t*>(data.y)};
}

/// Codes a thread can take: kVector or 1.
int codes_of(const PoolShape& s, const CudaPoolData& data, bool float_output) {
  const uintptr_t y_stride = float_output ? 0 : s.out_stride;
  return codes_per_thread({address(data.x), address(data.y), uintptr_t(s.in_stride), y_stride}) == kVector ? kVector
                                                                                                           : 1;
}

}  // namespace

void cuda_max_pool_int8(const PoolShape& shape, const MaxPoolParams& params, const CudaPoolData& data,
                        CudaStream stream) {
  const int codes = codes_of(shape, data, false);
  const PoolArgs args = make_args(shape, data, codes);
  const uint32_t flip = params.is_signed ? 0x80808080u : 0;
  const auto four = [flip](int32_t code) { return (static_cast<uint32_t>(code) & 0xFF) * 0x01010101u ^ flip; };
  const auto kernel = codes == kVector ? max_pool_kernel<kVector> : max_pool_kernel<1>;
  launch_overlapped(kernel, blocks_for(args.threads, kThreads), kThreads, 0, stream, args, flip, four(params.clamp_min),
                    four(params.clamp_max));
  check_launch("max pooling");
}

void cuda_avg_pool_int8(const PoolShape& shape, const AvgPoolParams& params, const CudaPoolData& data,
                        CudaStream stream) {
  const AverageArgs average{UnsignedEdge(params.x), params.multiplier, CudaRounding(params.y), params.y.float_output};
  const int codes = codes_of(shape, data, params.y.float_output);
  if (codes == kVector && is_wide_window(shape)) return wide_avg_pool_int8(shape, average, data, stream);
  const PoolArgs args = make_args(shape, data, codes);
  const auto kernel = codes == kVector ? avg_pool_kernel<kVector> : avg_pool_kernel<1>;
  launch_overlapped(kernel, blocks_for(args.threads, kThreads), kThreads, 0, stream, args, average);
  check_launch("average pooling");
}

}  // namespace octet::kernels
