// Averages over many codes: the window of an output pixel is split among the threads of a block, and among blocks
// where there are few pixels and channels. Sums of int32 are the same in any order.
#include <algorithm>

#include "kernels/cuda_launch.h"
#include "kernels/cuda_overlap.h"
#include "kernels/cuda_workspace.h"
#include "kernels/pool_int8/pool_window.cuh"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kVector = 16;             // channels of a thread
constexpr int kAhead = 4;               // loads that wait together
constexpr unsigned kManyBlocks = 1024;  // enough to keep any GPU's memory busy

/// Blocks take `lanes` vectors of channels of a pixel each, and 1 / splits of its window.
struct WideGrid {
  int lanes;
  unsigned pixels, groups, splits = 1;

  WideGrid(const PoolShape& s, int images) : pixels(static_cast<unsigned>(images) * s.out_h * s.out_w) {
    // Many lanes read whole cache lines, few leave more blocks and no idle threads where channels are few.
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
  int32_t* counters;  ///< [tiles]: splits that arrived
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

  // kSlices threads add up a channel's parts, one of them what they have.
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

}  // namespace octet::kernels
