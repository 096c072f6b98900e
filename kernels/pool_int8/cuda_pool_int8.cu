// Bound by memory: a thread takes 16 neighbouring channels of an output pixel where the layout allows, else 1. Averages
// over many codes, such as global ones, split a window among the threads of a block.
#include "kernels/cuda_launch.h"
#include "kernels/cuda_vector.cuh"
#include "kernels/pool_int8/cuda_pool_int8.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kVector = 16;
/// A window of at least kWideWindow codes is split into kParts parts; a block then takes kLanes vectors of channels.
constexpr int kParts = 16, kLanes = 16, kWideWindow = 16, kAhead = 4;

struct PoolArgs {
  PoolShape s;
  unsigned threads, vectors;  ///< vectors of codes in all, and of one pixel
  const uint8_t* x;
  uint8_t* y;
};

/// Output pixel `pixel` of a batch and the part of its window that lies inside the image.
struct Window {
  const uint8_t* from;  ///< channel 0 of the first code inside
  int rows, columns;

  __device__ Window(const PoolArgs& a, unsigned pixel) {
    const PoolShape& s = a.s;
    const unsigned image = pixel / s.out_w / s.out_h;
    const int top = static_cast<int>(pixel / s.out_w % s.out_h) * s.stride_h - s.pad_h;
    const int left = static_cast<int>(pixel % s.out_w) * s.stride_w - s.pad_w;
    const int first_row = max(top, 0), first_column = max(left, 0);
    rows = max(min(top + s.kernel_h, s.in_h) - first_row, 0);
    columns = max(min(left + s.kernel_w, s.in_w) - first_column, 0);
    from = a.x + ((static_cast<ptrdiff_t>(image) * s.in_h + first_row) * s.in_w + first_column) * s.in_stride;
  }
};

template <int kCodes>
__global__ void __launch_bounds__(kThreads)
    max_pool_kernel(PoolArgs a, uint32_t flip, uint32_t clamp_min, uint32_t clamp_max) {
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

struct AverageArgs {
  UnsignedEdge x;
  float multiplier;
  CudaRounding rounding;
  bool float_output;

  /// `sum` of `codes` flipped codes.
  __device__ float value(int32_t sum, int codes) const {
    return static_cast<float>(sum - codes * x.zero_point) * multiplier;
  }
  __device__ void store(float t, uint8_t* y, ptrdiff_t index) const {
    if (float_output) {
      reinterpret_cast<float*>(y)[index] = t;
    } else {
      y[index] = static_cast<uint8_t>(rounding(t));
    }
  }
};

/// sum[i] += code i
template <int kCodes>
__device__ void add_codes(const CodeVector<kCodes>& codes, uint32_t flip, int32_t* sum) {
#pragma unroll
  for (int i = 0; i < kCodes; ++i) sum[i] = dot4<false>(codes.word[i / 4] ^ flip, 1u << 8 * (i % 4), sum[i]);
}

template <int kCodes>
__global__ void __launch_bounds__(kThreads) avg_pool_kernel(PoolArgs a, AverageArgs average) {
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

/// One block: kLanes * kVector channels of one output pixel; every part sums each kParts-th code of the window.
__global__ void __launch_bounds__(kLanes* kParts) wide_avg_pool_kernel(PoolArgs a, AverageArgs average) {
  __shared__ int32_t sums[kParts][kLanes * kVector];
  const unsigned pixel = blockIdx.x;
  const int first = blockIdx.y * kLanes * kVector, lane = threadIdx.x % kLanes, part = threadIdx.x / kLanes;
  const Window window(a, pixel);
  const int codes = window.rows * window.columns, channel = first + lane * kVector;
  int32_t sum[kVector] = {};
  if (channel < a.s.channels) {
    for (int i = part; i < codes; i += kAhead * kParts) {
      CodeVector<kVector> ahead[kAhead];  // loads that wait together
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int tap = i + j * kParts, row = tap / window.columns, column = tap - row * window.columns;
        if (tap < codes) {
          ahead[j] = CodeVector<kVector>::load(
              window.from + (static_cast<ptrdiff_t>(row) * a.s.in_w + column) * a.s.in_stride + channel);
        }
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (i + j * kParts < codes) add_codes<kVector>(ahead[j], average.x.flip, sum);
      }
    }
  }
  for (int i = 0; i < kVector; i += 4) {
    *reinterpret_cast<int4*>(&sums[part][lane * kVector + i]) = {sum[i], sum[i + 1], sum[i + 2], sum[i + 3]};
  }
  __syncthreads();

  static_assert(kLanes * kVector == kLanes * kParts, "one thread ends one channel");
  const int own = threadIdx.x;
  if (first + own >= a.s.channels) return;
  int32_t total = 0;
#pragma unroll
  for (int i = 0; i < kParts; ++i) total += sums[i][own];
  average.store(average.value(total, codes), a.y, static_cast<ptrdiff_t>(pixel) * a.s.out_stride + first + own);
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
  kernel<<<blocks_for(args.threads, kThreads), kThreads, 0, stream>>>(args, flip, four(params.clamp_min),
                                                                      four(params.clamp_max));
  check_launch("max pooling");
}

void cuda_avg_pool_int8(const PoolShape& shape, const AvgPoolParams& params, const CudaPoolData& data,
                        CudaStream stream) {
  const AverageArgs average{UnsignedEdge(params.x), params.multiplier, CudaRounding(params.y), params.y.float_output};
  const int codes = codes_of(shape, data, params.y.float_output);
  const PoolArgs args = make_args(shape, data, codes);
  if (codes == kVector && shape.kernel_h * shape.kernel_w >= kWideWindow) {
    const dim3 blocks(args.threads / args.vectors, blocks_for(shape.channels, kLanes * kVector));
    wide_avg_pool_kernel<<<blocks, kLanes * kParts, 0, stream>>>(args, average);
  } else {
    const auto kernel = codes == kVector ? avg_pool_kernel<kVector> : avg_pool_kernel<1>;
    kernel<<<blocks_for(args.threads, kThreads), kThreads, 0, stream>>>(args, average);
  }
  check_launch("average pooling");
}

}  // namespace octet::kernels
