// A block computes kTile rows of kTile columns of one head, from tiles of both factors in shared memory: attention's
// products are a small part of a network.
#include "kernels/cuda_launch.h"
#include "kernels/cuda_overlap.h"
#include "kernels/cuda_vector.cuh"
#include "kernels/matmul_int8/cuda_matmul_int8.h"

namespace octet::kernels {
namespace {

constexpr int kTile = 16;

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

__global__ void __launch_bounds__(kTile* kTile) matmul_kernel(MatmulArgs args) {
  wait_for_previous_kernel();
  const MatmulShape& s = args.s;
  const int x = threadIdx.x % kTile, y = threadIdx.x / kTile;
  const int column_tile = blockIdx.x % args.column_tiles, above = blockIdx.x / args.column_tiles;
  const int row_tile = above % args.row_tiles, head = above / args.row_tiles % s.heads;
  const ptrdiff_t image = above / args.row_tiles / s.heads;
  const int row = row_tile * kTile + y, first_column = column_tile * kTile;
  // Of b the threads of a half warp read neighbours: its terms when transposed, else its columns.
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
  if (args.float_output) {
    static_cast<float*>(args.y)[at] = t;
  } else {
    static_cast<uint8_t*>(args.y)[at] = static_cast<uint8_t>(args.rounding(t));
  }
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

}  // namespace octet::kernels
