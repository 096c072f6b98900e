// SPDX-License-Identifier: Apache-2.0
// Turns a tile's sums into codes in memory: the sums of groups and of a cluster's blocks are added up, and each block
// finishes a share of the output. Include it in .cu files only.
#pragma once

#include "kernels/core/launch.cuh"
#include "kernels/groups/inverted_residual/load.cuh"

namespace octet::kernels {

/// The position of a column of a tile, that of its first output row.
struct InvertedColumn {
  int image, y, x;  ///< counted from the tile's first

  template <int kRows>
  static __device__ __forceinline__ InvertedColumn at(const InvertedArgs& p, int position) {
    const int strip = p.by_tile_w.divide(position), image = p.by_strips.divide(strip);
    return {image, (strip - image * p.strips) * kRows, position - strip * p.tile_w};
  }
};

/// Sets window[i] to the offset in the first plane where the windows of a warp's columns 8 i and on begin. With kPairs
/// there are only eight columns.
template <int kRows, int kStride, bool kPairs>
__device__ __forceinline__ void find_windows(const InvertedArgs& p, const InvertedGroup& group, int (&window)[2]) {
  const int lane = threadIdx.x % 32, columns = kPairs ? p.strips * p.tile_w : p.tiles.positions;
#pragma unroll
  for (int i = 0; i < (kPairs ? 1 : 2); ++i) {  // columns behind the last read the pixels of the first
    const int position = group.warp() * (kPairs ? 8 : 16) + i * 8 + lane / 4;
    const InvertedColumn column = InvertedColumn::at<kRows>(p, position < columns ? position : 0);
    window[i] = group.hidden + lane % 2 * 8 +
                ((column.image * p.tiles.halo_h + column.y * kStride) * p.tiles.halo_w + column.x * kStride) * 16;
  }
}

/// The output columns of a thread's two pixels, which are in a warp's columns 8 i and on; with kPairs, the same column
/// of two images.
template <int kRows, bool kPairs = false>
struct OutputColumns {
  int pixel[2];  ///< output pixel of the first row
  int rows[2];   ///< rows inside the output

  OutputColumns() = default;
  __device__ __forceinline__ OutputColumns(const InvertedArgs& p, const InvertedPlace& at, int warp) {
    const int columns = kPairs ? p.strips * p.tile_w : p.tiles.positions;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int position = kPairs ? warp * 8 + threadIdx.x % 32 / 4 : warp * 16 + i * 8 + threadIdx.x % 32 / 4;
      const InvertedColumn column = InvertedColumn::at<kRows>(p, position);
      const int image = at.image + (kPairs ? i : column.image), y = at.oy + column.y, x = at.ox + column.x;
      const bool inside = position < columns && image < p.images && x < p.out_w;
      rows[i] = inside ? min(kRows, p.out_h - y) : 0;
      pixel[i] = (image * p.out_h + y) * p.out_w + x;
    }
  }
};

/// A unit of a tile's output: 32 channels of 16 pixels, which are the columns of a warp in one row. A thread has 8
/// channels of two pixels. Constants and residual are read early, so that they arrive while sums are added up.
struct InvertedUnit {
  int channel;
  int pixel[2];
  bool inside[2];
  CodeWords<2> residual[2];
  float4 multiplier[2], bias[2];
  int2 start[4];

  template <class Columns>
  __device__ __forceinline__ void read(const InvertedArgs& p, const Columns& columns, int row, int quad) {
    channel = quad * 32 + threadIdx.x % 4 * 8;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      inside[i] = row < columns.rows[i] && channel < p.out.out_c;
      pixel[i] = columns.pixel[i] + row * p.out_w;
      residual[i] = {};
      if (inside[i] && p.out.residual != nullptr) {
        residual[i].load(p.out.residual + static_cast<int64_t>(pixel[i]) * p.out.residual_stride + channel);
      }
      multiplier[i] = reinterpret_cast<const float4*>(p.out.constants.multiplier + channel)[i];
      bias[i] = reinterpret_cast<const float4*>(p.out.constants.bias + channel)[i];
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) start[n] = reinterpret_cast<const int2*>(p.out.constants.init + channel)[n];
  }

  /// Sets the sums to their start values.
  __device__ __forceinline__ void begin(int32_t (&sum)[4][4]) const {
#pragma unroll
    for (int n = 0; n < 4; ++n) sum[n][0] = sum[n][2] = start[n].x, sum[n][1] = sum[n][3] = start[n].y;
  }

  /// Stores the codes of sums that started from begin(): sum[n] has channels 2 n and on of pixel 0, then of pixel 1.
  __device__ __forceinline__ void store(const InvertedArgs& p, const int32_t (&sum)[4][4]) const {
    const ResidualCodes residual_codes(p.out.epilogue);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (!inside[i]) continue;
      CodeWords<2> codes;
#pragma unroll
      for (int word = 0; word < 2; ++word) {
        const int32_t acc[4] = {sum[word * 2][i * 2], sum[word * 2][i * 2 + 1], sum[word * 2 + 1][i * 2],
                                sum[word * 2 + 1][i * 2 + 1]};
        codes.word[word] =
            p.out.residual != nullptr
                ? finish_codes<true>(p.out, residual_codes, acc, multiplier[word], bias[word], residual[i].word[word])
                : finish_codes<false>(p.out, residual_codes, acc, multiplier[word], bias[word], 0);
      }
      p.out.rounding.finish(codes.word);
      codes.store(static_cast<uint8_t*>(p.out.y) + static_cast<int64_t>(pixel[i]) * p.out.out_stride + channel);
    }
  }
};

/// Adds up the sums of a block's groups, `units` units each. A block without a cluster keeps them in place of its first
/// group's sums. In a cluster unit u is written to block u % parts, which has room for all parts of its units. Sums are
/// written to the other block rather than read from it, because a read waits for the way there and back.
__device__ __forceinline__ void gather_sums(const InvertedArgs& p, int units) {
  const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
  if (p.parts > 1) wait_for_cluster();  // all blocks have begun, so their memory may be written
#pragma unroll 1
  for (int unit = threadIdx.x / 32; unit < units; unit += warps) {
    const int slot = unit / p.parts, owner = unit - slot * p.parts, from = unit * kUnitBytes + lane * 16;
    const uint32_t to = address_in_block(
        shared_address(inverted_shared) + p.shared.gathered + (slot * p.parts + blockIdx.y) * kUnitBytes + lane * 16,
        owner);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      int4 sum = shared_at<int4>(from + n * 512);
#pragma unroll 1
      for (int group = 1; group < p.groups; ++group) {
        const int4 v = shared_at<int4>(group * units * kUnitBytes + from + n * 512);
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
      }
      if (p.parts > 1) {
        store_to_cluster(to + n * 512, sum);
      } else {
        shared_at<int4>(from + n * 512) = sum;
      }
    }
  }
  if (p.parts > 1) {
    arrive_at_cluster_with_writes();
    wait_for_cluster();
  } else {
    __syncthreads();
  }
}

/// Finishes a tile. Sums go through shared memory even if nobody shares them, so that the code which finishes them
/// exists once: less code is fetched faster.
template <int kRows, int kQuads>
__device__ __forceinline__ void store_tile(const InvertedArgs& p, const InvertedPlace& at,
                                           const int32_t (&sum)[kRows][kQuads * 4][4]) {
  constexpr int kUnits = kRows * kQuads;  // units of a warp
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32, lane = threadIdx.x % 32;
  __syncthreads();  // all threads have read what is overwritten here
#pragma unroll
  for (int i = 0; i < kUnits * 4; ++i) {
    const int32_t(&v)[4] = sum[i / 4 / kQuads][i % (kQuads * 4)];
    shared_at<int4>(warp * kUnits * kUnitBytes + (i * 32 + lane) * 16) = make_int4(v[0], v[1], v[2], v[3]);
  }
  // Without groups and parts a warp finishes what it has computed.
  const bool shared = p.groups * p.parts > 1;
  const int units = p.tiles.warps * kUnits, begin = shared ? warp * p.parts + blockIdx.y : warp * kUnits;
  const int end = shared ? units : begin + kUnits, step = shared ? warps * p.parts : 1;
  OutputColumns<kRows> columns(p, at, begin / kUnits);
  InvertedUnit next;
  const auto read = [&](int unit) {
    if (shared) columns = OutputColumns<kRows>(p, at, unit / kUnits);
    next.read(p, columns, unit % kUnits / kQuads, unit % kQuads);
  };
  if (begin < end) read(begin);
  if (shared) {
    __syncthreads();
    gather_sums(p, units);
  } else {
    __syncwarp();
  }
#pragma unroll 1
  for (int unit = begin; unit < end; unit += step) {
    const InvertedUnit now = next;
    if (unit + step < end) read(unit + step);
    int32_t total[4][4];
    now.begin(total);
    const int from = (p.parts > 1 ? p.shared.gathered + unit / p.parts * p.parts * kUnitBytes : unit * kUnitBytes);
#pragma unroll 1
    for (int part = 0; part < p.parts; ++part) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int4 v = shared_at<int4>(from + part * kUnitBytes + (n * 32 + lane) * 16);
        total[n][0] += v.x, total[n][1] += v.y, total[n][2] += v.z, total[n][3] += v.w;
      }
    }
    now.store(p, total);
  }
}

/// Finishes a tile in turns, from registers: the code stays in the cache, and no warp waits for shared memory.
template <int kRows, int kQuads, class Columns>
__device__ __forceinline__ void store_turn(const InvertedArgs& p, const Columns& columns,
                                           const int32_t (&sum)[kRows][kQuads * 4][4]) {
#pragma unroll
  for (int quad = 0; quad < kQuads; ++quad) {
    InvertedUnit unit[kRows];
#pragma unroll
    for (int row = 0; row < kRows; ++row) unit[row].read(p, columns, row, quad);
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      int32_t total[4][4];
      unit[row].begin(total);
#pragma unroll
      for (int i = 0; i < 16; ++i) total[i / 4][i % 4] += sum[row][quad * 4 + i / 4][i % 4];
      unit[row].store(p, total);
    }
  }
}

}  // namespace octet::kernels
