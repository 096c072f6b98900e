// SPDX-License-Identifier: Apache-2.0
// Pooling is bound by memory: a thread takes 16 neighbouring channels of an output pixel where the layout allows, else
// one. Averages over large windows, such as global ones, split each window among threads and blocks; maxima over them
// are taken along rows, then along columns.
#include <algorithm>

#include "kernels/core/codes.cuh"
#include "kernels/core/launch.cuh"
#include "kernels/operators/pool.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kVector = 16;             // channels of a thread
constexpr int kAhead = 4;               // loads in flight at a time
constexpr unsigned kManyBlocks = 1024;  // enough to keep any GPU's memory busy

struct PoolArgs {
  PoolShape s;
  unsigned threads, vectors;  ///< vectors of codes in all, and in one pixel
  const uint8_t* x;
  uint8_t* y;
};

/// The part of an output pixel's window that lies inside the image. Pixels are counted over the whole batch.
struct Window {
  const uint8_t* from;  ///< channel 0 of the first pixel inside
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

/// Whether each window is split among threads and blocks. Sums of int32 are the same in any order.
bool is_wide_window(const PoolShape& s) { return s.kernel_h * s.kernel_w >= 16; }

/// The grid of such a launch: a block takes `lanes` vectors of channels of one pixel, and 1 / splits of its window.
struct WideGrid {
  int lanes;
  unsigned pixels, groups, splits = 1;

  WideGrid(const PoolShape& s, int images) : pixels(static_cast<unsigned>(images) * s.out_h * s.out_w) {
    // Many lanes read whole cache lines; few give more blocks, and no idle threads where channels are few.
    const auto groups_of = [&](int of_block) { return blocks_for(s.channels, of_block * kVector); };
    lanes = s.channels >= 16 * kVector && pixels * groups_of(16) >= kManyBlocks / 4 ? 16 : 2;
    groups = groups_of(lanes);
    const unsigned useful = s.kernel_h * s.kernel_w / (kThreads / lanes * kAhead);
    if (tiles() <= kCudaWorkspaceZeros / sizeof(int32_t)) {
      splits = std::max(1u, std::min(blocks_for(kManyBlocks, static_cast<int>(tiles())), useful));
    }
  }
  unsigned tiles() const { return pixels * groups; }
};

struct WideArgs {
  PoolArgs pool;
  AverageArgs average;
  int32_t* counters;  ///< [tiles]: how many splits have written their sums
  int32_t* partial;   ///< [tiles, splits, channels of a block]
};

template <int kLanes>
__global__ void __launch_bounds__(kThreads) wide_avg_pool_kernel(WideArgs w) {
  constexpr int kParts = kThreads / kLanes, kChannels = kLanes * kVector, kSlices = kThreads / kChannels;
  __shared__ __align__(16) int32_t sums[kParts * kChannels];
  __shared__ int arrived;
  wait_for_previous_kernel();
  const PoolArgs& a = w.pool;
  const unsigned pixel = blockIdx.x, splits = gridDim.z;
  const int first = blockIdx.y * kChannels, lane = threadIdx.x % kLanes, part = threadIdx.x / kLanes;
  const Window window(a, pixel);
  const int codes = window.rows * window.columns, channel = first + lane * kVector, step = splits * kParts;
  int32_t sum[kVector] = {};
  if (channel < a.s.channels) {
    for (int i = blockIdx.z * kParts + part; i < codes; i += kAhead * step) {
      CodeVector<kVector> ahead[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int tap = i + j * step, row = tap / window.columns, column = tap - row * window.columns;
        if (tap < codes) {
          ahead[j] = CodeVector<kVector>::load(
              window.from + (static_cast<ptrdiff_t>(row) * a.s.in_w + column) * a.s.in_stride + channel);
        }
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (i + j * step < codes) add_codes<kVector>(ahead[j], w.average.x.flip, sum);
      }
    }
  }
  for (int i = 0; i < kVector; i += 4) {
    *reinterpret_cast<int4*>(&sums[part * kChannels + lane * kVector + i]) = {sum[i], sum[i + 1], sum[i + 2],
                                                                              sum[i + 3]};
  }
  __syncthreads();

  // kSlices threads add up the parts of one channel; the first of them adds up their sums.
  const int own = threadIdx.x % kChannels, slice = threadIdx.x / kChannels;
  int32_t total = 0;
#pragma unroll
  for (int i = 0; i < kParts / kSlices; ++i) total += sums[(slice + i * kSlices) * kChannels + own];
  if constexpr (kSlices > 1) {
    __syncthreads();
    sums[threadIdx.x] = total;
    __syncthreads();
    if (slice == 0) {
#pragma unroll
      for (int i = 1; i < kSlices; ++i) total += sums[i * kChannels + own];
    }
  }
  if (splits > 1) {
    const unsigned tile = pixel * gridDim.y + blockIdx.y;
    int32_t* partial = w.partial + static_cast<ptrdiff_t>(tile) * splits * kChannels + own;
    if (slice == 0) __stcg(partial + blockIdx.z * kChannels, total);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      arrived = atomicAdd(w.counters + tile, 1);
      if (arrived == static_cast<int>(splits) - 1) w.counters[tile] = 0;  // for the next launch
    }
    __syncthreads();
    if (arrived != static_cast<int>(splits) - 1 || slice > 0) return;
    __threadfence();
    total = 0;
    for (unsigned i = 0; i < splits; ++i) total += __ldcg(partial + i * kChannels);
  }
  if (slice > 0 || first + own >= a.s.channels) return;
  w.average.store(w.average.value(total, codes), a.y, static_cast<ptrdiff_t>(pixel) * a.s.out_stride + first + own);
}

}  // namespace

size_t cuda_avg_pool_workspace(const PoolShape& shape, int images) {
  const WideGrid grid(shape, images);
  if (!is_wide_window(shape) || grid.splits == 1) return 0;
  return kCudaWorkspaceZeros + sizeof(int32_t) * grid.tiles() * grid.splits * grid.lanes * kVector;
}

namespace {

/// Averages over wide windows. Strides and addresses are multiples of 16.
void wide_avg_pool_int8(const PoolShape& shape, const AverageArgs& average, const CudaPoolData& data,
                        CudaStream stream) {
  const WideGrid grid(shape, data.images);
  int32_t* counters = static_cast<int32_t*>(data.workspace);
  const WideArgs args{{shape, 0, 0, static_cast<const uint8_t*>(data.x), static_cast<uint8_t*>(data.y)},
                      average,
                      counters,
                      counters + kCudaWorkspaceZeros / sizeof(int32_t)};
  const auto kernel = grid.lanes == 16 ? wide_avg_pool_kernel<16> : wide_avg_pool_kernel<2>;
  launch_overlapped(kernel, dim3(grid.pixels, grid.groups, grid.splits), kThreads, 0, stream, args);
  check_launch("average pooling");
}

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

/// The shared memory of a block of separable_max_pool_kernel().
size_t separable_bytes(const PoolShape& s) { return static_cast<size_t>(s.in_h) * s.out_w * kVector; }

/// Whether a maximum of each row's part of a window, and then one over the rows, takes fewer steps than the window.
bool is_separable(const PoolShape& s) {
  constexpr size_t kSharedBytes = 48 << 10;  // what a launch may use without asking
  return is_wide_window(s) && s.kernel_h > 1 && s.kernel_w > 1 && separable_bytes(s) <= kSharedBytes;
}

/// A block takes kVector channels of an image: first the maxima along rows, into shared memory, then along columns.
/// Grid: images times vectors of a pixel. Strides and addresses are multiples of 16.
__global__ void __launch_bounds__(kThreads)
    separable_max_pool_kernel(PoolArgs a, uint32_t flip, uint32_t clamp_min, uint32_t clamp_max) {
  using Vector = CodeVector<kVector>;
  extern __shared__ __align__(16) uint8_t of_rows[];  // [in_h, out_w, kVector], flipped
  const PoolShape& s = a.s;
  const unsigned image = blockIdx.x / a.vectors;
  const int channel = static_cast<int>(blockIdx.x % a.vectors) * kVector;
  const auto add = [](Vector& largest, const Vector& codes, uint32_t turned) {
#pragma unroll
    for (int w = 0; w < Vector::kWords; ++w) largest.word[w] = __vmaxu4(largest.word[w], codes.word[w] ^ turned);
  };
  const Vector lowest = {clamp_min, clamp_min, clamp_min, clamp_min};
  wait_for_previous_kernel();
  for (int i = threadIdx.x; i < s.in_h * s.out_w; i += kThreads) {
    const int row = i / s.out_w, left = i % s.out_w * s.stride_w - s.pad_w;
    const uint8_t* from = a.x + (static_cast<ptrdiff_t>(image) * s.in_h + row) * s.in_w * s.in_stride + channel;
    Vector largest = lowest;
    for (int column = max(left, 0); column < min(left + s.kernel_w, s.in_w); ++column) {
      add(largest, Vector::load(from + static_cast<ptrdiff_t>(column) * s.in_stride), flip);
    }
    largest.store(of_rows + i * kVector, kVector);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < s.out_h * s.out_w; i += kThreads) {
    const int top = i / s.out_w * s.stride_h - s.pad_h;
    Vector largest = lowest;
    for (int row = max(top, 0); row < min(top + s.kernel_h, s.in_h); ++row) {
      add(largest, Vector::load(of_rows + (row * s.out_w + i % s.out_w) * kVector), 0);
    }
    for (uint32_t& word : largest.word) word = __vminu4(word, clamp_max) ^ flip;
    const ptrdiff_t pixel = static_cast<ptrdiff_t>(image) * s.out_h * s.out_w + i;
    largest.store(a.y + pixel * s.out_stride + channel, s.channels - channel);
  }
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

/// Returns how many codes a thread can take: kVector or 1.
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
  if (codes == kVector && is_separable(shape)) {
    launch_overlapped(separable_max_pool_kernel, data.images * args.vectors, kThreads, separable_bytes(shape), stream,
                      args, flip, four(params.clamp_min), four(params.clamp_max));
  } else {
    const auto kernel = codes == kVector ? max_pool_kernel<kVector> : max_pool_kernel<1>;
    launch_overlapped(kernel, blocks_for(args.threads, kThreads), kThreads, 0, stream, args, flip,
                      four(params.clamp_min), four(params.clamp_max));
  }
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
