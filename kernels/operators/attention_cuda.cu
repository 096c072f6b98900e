// SPDX-License-Identifier: Apache-2.0
// The operators of attention are a small part of a network: simple kernels are enough.
#include "kernels/core/codes.cuh"
#include "kernels/core/launch.cuh"
#include "kernels/operators/attention.h"

namespace octet::kernels {
namespace {

constexpr int kTile = 16;
constexpr int kThreads = 256;  // of softmax_kernel: each copies one entry of the table
constexpr int kLanes = 32;
constexpr unsigned kAll = 0xFFFFFFFFu;

struct MatmulArgs {
  MatmulShape s;
  unsigned row_tiles, column_tiles;
  ptrdiff_t a_image, b_image, y_image;  ///< elements of one image
  CodeInput a_edge, b_edge;
  float multiplier;
  CudaRounding rounding;
  bool float_output;
  const void* a;
  const void* b;
  void* y;
};

/// A block computes kTile rows of kTile columns of one head, from tiles of both factors in shared memory.
__global__ void __launch_bounds__(kTile* kTile) matmul_kernel(MatmulArgs args) {
  wait_for_previous_kernel();
  const MatmulShape& s = args.s;
  const int x = threadIdx.x % kTile, y = threadIdx.x / kTile;
  const int column_tile = blockIdx.x % args.column_tiles, above = blockIdx.x / args.column_tiles;
  const int row_tile = above % args.row_tiles, head = above / args.row_tiles % s.heads;
  const ptrdiff_t image = above / args.row_tiles / s.heads;
  const int row = row_tile * kTile + y, first_column = column_tile * kTile;
  // The threads of a half warp read neighbouring elements of b: terms when it is transposed, else columns.
  const int b_term = s.transposed ? x : y, b_column = s.transposed ? y : x;
  const bool own_row = row < s.rows, own_column = first_column + b_column < s.columns;
  __shared__ int32_t a_tile[kTile][kTile], b_tile[kTile][kTile + 1];
  int32_t sum = 0;
  for (int first = 0; first < s.terms; first += kTile) {
    int32_t a_code = 0, b_code = 0;
    if (own_row && first + x < s.terms) {
      const ptrdiff_t at = image * args.a_image + static_cast<ptrdiff_t>(row) * s.a_stride + head * s.terms + first + x;
      a_code = load_code(args.a, at, args.a_edge.is_signed) - args.a_edge.zero_point;
    }
    if (own_column && first + b_term < s.terms) {
      const ptrdiff_t at = image * args.b_image + matmul_b_index(s, head, first + b_term, first_column + b_column);
      b_code = load_code(args.b, at, args.b_edge.is_signed) - args.b_edge.zero_point;
    }
    a_tile[y][x] = a_code;
    b_tile[b_term][b_column] = b_code;
    __syncthreads();
#pragma unroll
    for (int term = 0; term < kTile; ++term) sum += a_tile[y][term] * b_tile[term][x];
    __syncthreads();
  }
  const int column = first_column + x;
  if (!own_row || column >= s.columns) return;
  const float t = static_cast<float>(sum) * args.multiplier;
  const ptrdiff_t at = image * args.y_image + static_cast<ptrdiff_t>(row) * s.y_stride + head * s.columns + column;
  store_result(t, args.rounding, args.float_output, args.y, at);
}

}  // namespace

void cuda_matmul_int8(const MatmulShape& s, const MatmulParams& params, const CudaMatmulData& data, CudaStream stream) {
  const unsigned row_tiles = blocks_for(s.rows, kTile), column_tiles = blocks_for(s.columns, kTile);
  const unsigned blocks =
      thread_count(static_cast<long>(data.images) * s.heads * row_tiles * static_cast<long>(column_tiles), "matmul");
  const MatmulArgs args{s,
                        row_tiles,
                        column_tiles,
                        static_cast<ptrdiff_t>(s.rows) * s.a_stride,
                        static_cast<ptrdiff_t>(s.b_rows()) * s.b_stride,
                        static_cast<ptrdiff_t>(s.rows) * s.y_stride,
                        params.a,
                        params.b,
                        params.multiplier,
                        CudaRounding(params.y),
                        params.y.float_output,
                        data.a,
                        data.b,
                        data.y};
  launch_overlapped(matmul_kernel, blocks, kTile * kTile, 0, stream, args);
  check_launch("matmul");
}

namespace {

/// A warp computes one group of a pixel in three passes: the largest code, the sum, the quotients. The table comes with
/// the launch and is copied to shared memory, where each lane can read its own entry.
__global__ void __launch_bounds__(kThreads)
    softmax_kernel(const __grid_constant__ SoftmaxShape s, const __grid_constant__ SoftmaxParams params,
                   CudaRounding rounding, unsigned warps, const void* x, void* y) {
  __shared__ int32_t exponential[kThreads];
  exponential[threadIdx.x] = params.exponential[threadIdx.x];
  __syncthreads();
  const unsigned warp = (blockIdx.x * kThreads + threadIdx.x) / kLanes;
  if (warp >= warps) return;
  wait_for_previous_kernel();
  const ptrdiff_t pixel = warp / s.groups;
  const int lane = threadIdx.x % kLanes, first = warp % s.groups * s.channels;
  const auto code = [&](int c) { return load_code(x, pixel * s.x_stride + first + c, params.x_is_signed); };
  int32_t largest = -128;
  for (int c = lane; c < s.channels; c += kLanes) largest = max(largest, code(c));
  for (int step = kLanes / 2; step > 0; step /= 2) largest = max(largest, __shfl_xor_sync(kAll, largest, step));
  int32_t sum = 0;
  for (int c = lane; c < s.channels; c += kLanes) sum += exponential[largest - code(c)];
  for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAll, sum, step);
  const float divisor = static_cast<float>(sum);
  for (int c = lane; c < s.channels; c += kLanes) {
    const float share = __fdiv_rn(static_cast<float>(exponential[largest - code(c)]), divisor);
    const float t = __fmul_rn(share, params.multiplier);
    store_result(t, rounding, params.y.float_output, y, pixel * s.y_stride + first + c);
  }
}

}  // namespace

void cuda_softmax_int8(const SoftmaxShape& s, const SoftmaxParams& params, const void* x, void* y, CudaStream stream) {
  const unsigned threads = thread_count(static_cast<long>(s.pixels) * s.groups * kLanes, "softmax");
  launch_overlapped(softmax_kernel, blocks_for(threads, kThreads), kThreads, 0, stream, s, params,
                    CudaRounding(params.y), threads / kLanes, x, y);
  check_launch("softmax");
}

}  // namespace octet::kernels
