// SPDX-License-Identifier: Apache-2.0
// The products of an inverted residual, all on tensor cores (mma.m16n8k32). A thread block computes a tile of output
// pixels and all output channels, 32 hidden channels at a time:
//   expand     input pixels x 32 hidden channels, rounded to codes in shared memory, with zero points around the images
//   depthwise  16 pixels x 8 channels at once: row r of the window is a product over 3 pixels x 8 channels whose
//              weights are 0 where channels differ. A warp moves down the rows of its columns, so that it reads each
//              row once.
//   project    the codes that a thread has rounded are its fragment of the narrowing product's input, in registers
// Include it in .cu files only.
#pragma once

#include "kernels/groups/inverted_residual/load.cuh"

namespace octet::kernels {

/// Loads packed fragments of two blocks of 8 columns.
__device__ __forceinline__ uint4 weight_fragments(int weight, int pair) {
  return shared_at<uint4>(weight + pair * 512 + threadIdx.x % 32 * 16);
}

/// The constants of kCount channels of a thread, from `first` on in arrays of kChannels.
template <int kCount, int kChannels>
struct HeldConstants {
  float multiplier[kCount], bias[kCount];
  int4 start[kCount / 2];  ///< start values of two channels, twice

  __device__ __forceinline__ HeldConstants(int constants, int first) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const int at = constants + (first + i) * 4;
      const float4 scale = shared_at<float4>(at), plus = shared_at<float4>(at + kChannels * 4);
      multiplier[i] = scale.x, multiplier[i + 1] = scale.y, multiplier[i + 2] = scale.z, multiplier[i + 3] = scale.w;
      bias[i] = plus.x, bias[i + 1] = plus.y, bias[i + 2] = plus.z, bias[i + 3] = plus.w;
    }
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) start[i] = shared_at<int4>(constants + kChannels * 8 + (first / 2 + i) * 16);
  }
  /// Returns the held codes of channels i to i + 3 in row `row` of two products.
  template <bool kRelu>
  __device__ __forceinline__ uint32_t codes(const CodeSteps& steps, int i, int row, const int32_t (&left)[4],
                                            const int32_t (&right)[4]) const {
    return steps.word<kRelu>(scaled<kRelu>(i, left[row * 2]), scaled<kRelu>(i + 1, left[row * 2 + 1]),
                             scaled<kRelu>(i + 2, right[row * 2]), scaled<kRelu>(i + 3, right[row * 2 + 1]));
  }

 private:
  template <bool kRelu>
  __device__ __forceinline__ float scaled(int i, int32_t sum) const {
    return kRelu ? rescale_to_unit(sum, multiplier[i], bias[i]) : rescale(sum, multiplier[i], bias[i]);
  }
};

/// What the expanding products of a chunk share.
template <bool kRelu>
struct ExpandedChunk {
  int chunk;
  HeldConstants<8, kHiddenChunk> constants;
  uint4 first[2];

  __device__ __forceinline__ ExpandedChunk(const InvertedArgs& p, int address)
      : chunk(address),
        constants(address + p.chunk.expand_constants, threadIdx.x % 4 * 8),
        first{weight_fragments(address, 0), weight_fragments(address, 1)} {}

  /// Computes the held codes of 16 pixels, of which a thread has eight channels of two: codes[i] is pixel lane / 4 + 8
  /// i. x: the address of this lane's row of the first 32 input channels, for ldmatrix.
  __device__ __forceinline__ void pixels(const InvertedArgs& p, uint32_t x, uint2 (&codes)[2]) const {
    int32_t sum[4][4];
    uint32_t a[4];
    load_matrices(a, x);
    multiply_from(sum[0], a, first[0].x, first[0].y, constants.start[0]);
    multiply_from(sum[1], a, first[0].z, first[0].w, constants.start[1]);
    multiply_from(sum[2], a, first[1].x, first[1].y, constants.start[2]);
    multiply_from(sum[3], a, first[1].z, first[1].w, constants.start[3]);
#pragma unroll 1
    for (int k = 1; k < p.chunk.k_steps; ++k) {
      const uint4 b[2] = {weight_fragments(chunk, k * 2), weight_fragments(chunk, k * 2 + 1)};
      load_matrices(a, x + k * 32);
      multiply_add<false>(sum[0], a, b[0].x, b[0].y);
      multiply_add<false>(sum[1], a, b[0].z, b[0].w);
      multiply_add<false>(sum[2], a, b[1].x, b[1].y);
      multiply_add<false>(sum[3], a, b[1].z, b[1].w);
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      codes[row].x = constants.template codes<kRelu>(p.hidden, 0, row, sum[0], sum[1]);
      codes[row].y = constants.template codes<kRelu>(p.hidden, 4, row, sum[2], sum[3]);
    }
  }
};

/// Computes the depthwise windows of 16 hidden channels: kRows rows of output of the 16 columns of a warp. window[i]:
/// the offset in the plane of the first pixel of columns 8 i and on. codes[row]: the result becomes words 2 and 3 of
/// the narrowing product's fragments, and the former words 2 and 3 become words 0 and 1. kPairs: the columns are eight
/// of each of two images, whose words are adjacent in planes of eight channels, as in a fragment; window[1] is unused.
template <int kRows, int kStride, bool kPairs, bool kRelu>
__device__ __forceinline__ void depthwise(const InvertedArgs& p, int chunk, int plane, const int (&window)[2],
                                          uint32_t (&codes)[kRows][4]) {
  const int lane = threadIdx.x % 32;
  uint4 weight[3];
#pragma unroll
  for (int r = 0; r < 3; ++r) weight[r] = weight_fragments(chunk + p.chunk.depthwise, plane * 3 + r);
  const HeldConstants<4, 16> constants(chunk + p.chunk.depthwise_constants + plane * hidden_constants_bytes(16),
                                       lane % 4 * 4);
  const int tap = lane % 4 / 2 * 16, plane_tap = plane * p.shared.plane + tap;
  int from[2] = {window[0] + plane_tap, (kPairs ? window[0] + 2 * p.shared.plane : window[1]) + plane_tap};
  int32_t sum[kRows][2][4];
#pragma unroll
  for (int y = 0; y < (kRows - 1) * kStride + 3; ++y) {
    // For both pairs: taps 0 and 1 of columns 0 to 7 and 8 to 15; then taps 2 and 3, of which tap 3 has weights 0.
    uint2 x[4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      x[i] = shared_at<uint2>(from[i]);
      x[2 + i] = shared_at<uint2>(from[i] + 32);
      from[i] += p.tiles.halo_w * 16;
    }
    uint32_t a[2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[0][i] = kPairs ? (i % 2 ? x[i / 2 * 2].y : x[i / 2 * 2].x) : x[i].x;
      a[1][i] = kPairs ? (i % 2 ? x[i / 2 * 2 + 1].y : x[i / 2 * 2 + 1].x) : x[i].y;
    }
#pragma unroll
    for (int r = 0; r < 3; ++r) {
      if (y < r || (y - r) % kStride != 0 || (y - r) / kStride >= kRows) continue;
      auto& of_row = sum[(y - r) / kStride];
      if (r == 0) {
        multiply_from(of_row[0], a[0], weight[r].x, weight[r].y, constants.start[0]);
        multiply_from(of_row[1], a[1], weight[r].z, weight[r].w, constants.start[1]);
      } else {
        multiply_add<false>(of_row[0], a[0], weight[r].x, weight[r].y);
        multiply_add<false>(of_row[1], a[1], weight[r].z, weight[r].w);
      }
      if (r < 2) continue;
      auto& to = codes[(y - r) / kStride];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        to[i] = to[2 + i];
        to[2 + i] = constants.codes<kRelu>(p.windows, 0, i, of_row[0], of_row[1]);
      }
    }
  }
}

/// Adds a chunk's part of the narrowing product to sum.
template <int kRows, int kQuads>
__device__ __forceinline__ void project(int weights, const uint32_t (&codes)[kRows][4],
                                        int32_t (&sum)[kRows][kQuads * 4][4]) {
#pragma unroll
  for (int n = 0; n < kQuads * 4; n += 2) {
    const uint4 b = weight_fragments(weights, n / 2);
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      multiply_add<false>(sum[row][n], codes[row], b.x, b.y);
      multiply_add<false>(sum[row][n + 1], codes[row], b.z, b.w);
    }
  }
}

/// Returns the minimum number of blocks of a multiprocessor, which limits the registers of a thread.
template <int kRows, int kQuads>
constexpr int inverted_min_blocks() {
  return kRows * kQuads <= 2 ? 2 : 1;
}

}  // namespace octet::kernels
