// From a tile's sums to codes in memory: those of groups and of a cluster's blocks are added up, each block ends a
// share of the output. Include it in .cu files only.
#pragma once

#include "kernels/cuda_cluster.cuh"
#include "kernels/inverted_residual_int8/cuda/load.cuh"

namespace octet::kernels {

/// Where a column of a tile is: its first row of output.
struct InvertedColumn {
  int image, y, x;  ///< from the tile's first

  template <int kRows>
  static __device__ __forceinline__ InvertedColumn at(const InvertedArgs& p, int position) {
    const int strip = p.by_tile_w.divide(position), image = p.by_strips.divide(strip);
    return {image, (strip - image * p.strips) * kRows, position - strip * p.tile_w};
  }
};

/// Two pixels of a thread, in columns i * 8 of a warp, of that column's rows in the output; none where it ends.
template <int kRows>
struct OutputColumns {
  int64_t pixel[2];  ///< of the first row
  int rows[2];

  __device__ __forceinline__ OutputColumns(const InvertedArgs& p, const InvertedPlace& at, int warp) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int position = warp * 16 + i * 8 + threadIdx.x % 32 / 4;
      const InvertedColumn column = InvertedColumn::at<kRows>(p, position);
      const int image = at.image + column.image, y = at.oy + column.y, x = at.ox + column.x;
      const bool inside = position < p.tiles.positions && image < p.images && x < p.out_w;
      rows[i] = inside ? min(kRows, p.out_h - y) : 0;
      pixel[i] = (static_cast<int64_t>(image) * p.out_h + y) * p.out_w + x;
    }
  }
};

/// Ends 8 channels of a thread's pixels in one row.
template <int kRows>
__device__ __forceinline__ void store_unit(const InvertedArgs& p, const OutputColumns<kRows>& columns, int row,
                                           int channel, const int32_t (&sum)[4][4]) {
  const ResidualCodes residual(p.out.epilogue);
  const float4* multiplier = reinterpret_cast<const float4*>(p.out.constants.multiplier + channel);
  const float4* bias = reinterpret_cast<const float4*>(p.out.constants.bias + channel);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (row >= columns.rows[i]) continue;
    const int64_t pixel = columns.pixel[i] + row * p.out_w;
    CodeWords<2> codes;
    if (p.out.residual != nullptr) codes.load(p.out.residual + pixel * p.out.residual_stride + channel);
#pragma unroll
    for (int word = 0; word < 2; ++word) {
      const int32_t acc[4] = {sum[word * 2][i * 2], sum[word * 2][i * 2 + 1], sum[word * 2 + 1][i * 2],
                              sum[word * 2 + 1][i * 2 + 1]};
      codes.word[word] = p.out.residual != nullptr
                             ? finish_codes<true>(p.out, residual, acc, multiplier[word], bias[word], codes.word[word])
                             : finish_codes<false>(p.out, residual, acc, multiplier[word], bias[word], 0);
    }
    p.out.rounding.finish(codes.word);
    codes.store(static_cast<uint8_t*>(p.out.y) + pixel * p.out.out_stride + channel);
  }
}

/// Ends a tile. Sums go through shared memory, so that groups, and the blocks of a cluster, add up each other's, each a
/// share of the output, and so that the code that ends them is there once: the less of it, the faster it comes.
template <int kRows, int kQuads>
__device__ __forceinline__ void store_tile(const InvertedArgs& p, const InvertedPlace& at,
                                           const int32_t (&sum)[kRows][kQuads * 4][4]) {
  constexpr int kUnits = kRows * kQuads, kUnitBytes = 4 * 32 * 16;  // of a warp; of 16 pixels x 32 channels
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32, lane = threadIdx.x % 32;
  __syncthreads();  // what lies there was read
#pragma unroll
  for (int i = 0; i < kUnits * 4; ++i) {
    const int32_t(&v)[4] = sum[i / 4 / kQuads][i % (kQuads * 4)];
    shared_at<int4>(warp * kUnits * kUnitBytes + (i * 32 + lane) * 16) = make_int4(v[0], v[1], v[2], v[3]);
  }
  if (p.parts > 1) {
    arrive_at_cluster_with_writes();
    wait_for_cluster();
  } else {
    __syncthreads();
  }
  // Alone a warp ends what it has computed.
  const int sharers = p.groups * p.parts, units = p.tiles.warps * kUnits;
  const int begin = sharers > 1 ? warp * p.parts + blockIdx.y : warp * kUnits;
  const int end = sharers > 1 ? units : begin + kUnits, step = sharers > 1 ? warps * p.parts : 1;
  OutputColumns<kRows> columns(p, at, begin / kUnits);
#pragma unroll 1
  for (int unit = begin; unit < end; unit += step) {
    const int of_warp = unit % kUnits, channel = of_warp % kQuads * 32 + lane % 4 * 8;
    if (sharers > 1) columns = OutputColumns<kRows>(p, at, unit / kUnits);
    if (channel >= p.out.out_c) continue;
    int32_t total[4][4];
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int2 start = *reinterpret_cast<const int2*>(p.out.constants.init + channel + n * 2);
      total[n][0] = total[n][2] = start.x, total[n][1] = total[n][3] = start.y;
    }
#pragma unroll 1
    for (int sharer = 0; sharer < sharers; ++sharer) {
      const int block = sharer / p.groups;
      const int from = ((sharer - block * p.groups) * units + unit) * kUnitBytes + lane * 16;
      const uint32_t theirs = address_in_block(shared_address(inverted_shared) + from, block);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int4 v = p.parts > 1 ? load_from_cluster(theirs + n * 512) : shared_at<int4>(from + n * 512);
        total[n][0] += v.x, total[n][1] += v.y, total[n][2] += v.z, total[n][3] += v.w;
      }
    }
    store_unit<kRows>(p, columns, of_warp / kQuads, channel, total);
  }
  if (p.parts > 1) {  // a block's sums stay until all have read them
    arrive_at_cluster();
    wait_for_cluster();
  }
}

}  // namespace octet::kernels
