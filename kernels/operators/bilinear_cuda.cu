// SPDX-License-Identifier: Apache-2.0
// Bilinear resizing is bound by memory: a thread takes four neighbouring channels of an output pixel where the layout
// allows, else one.
#include <algorithm>

#include "kernels/core/codes.cuh"
#include "kernels/core/launch.cuh"
#include "kernels/operators/bilinear.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;

struct BilinearArgs {
  BilinearShape s;
  unsigned threads, vectors;  ///< vectors of codes in all, and in one pixel
  UnsignedEdge edge;
  float multiplier;
  CudaRounding rounding;
  bool float_output;
  const uint8_t* x;
  uint8_t* y;
};

template <int kCodes>
__global__ void __launch_bounds__(kThreads) bilinear_kernel(BilinearArgs a) {
  wait_for_previous_kernel();
  const unsigned thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= a.threads) return;
  const BilinearShape& s = a.s;
  const unsigned out_h = s.in_h * s.factor_h, out_w = s.in_w * s.factor_w;
  const unsigned pixel = thread / a.vectors, image = pixel / out_w / out_h;
  const int channel = thread % a.vectors * kCodes;
  const BilinearTaps v = bilinear_taps(pixel / out_w % out_h, s.factor_h, s.in_h);
  const BilinearTaps h = bilinear_taps(pixel % out_w, s.factor_w, s.in_w);
  using Vector = CodeVector<kCodes>;
  const auto corner = [&](int row, int column) {
    const ptrdiff_t from = (static_cast<ptrdiff_t>(image) * s.in_h + row) * s.in_w + column;
    return Vector::load(a.x + from * s.in_stride + channel).word[0] ^ a.edge.flip;
  };
  const uint32_t above_left = corner(v.first, h.first), above_right = corner(v.first, h.second);
  const uint32_t below_left = corner(v.second, h.first), below_right = corner(v.second, h.second);
  const int32_t zeros = 4 * s.factor_h * s.factor_w * a.edge.zero_point;

  float t[kCodes];
#pragma unroll
  for (int i = 0; i < kCodes; ++i) {
    const auto code = [&](uint32_t word) { return static_cast<int32_t>(word >> 8 * i & 0xFF); };
    const int32_t above = h.first_weight * code(above_left) + h.second_weight * code(above_right);
    const int32_t below = h.first_weight * code(below_left) + h.second_weight * code(below_right);
    t[i] = static_cast<float>(v.first_weight * above + v.second_weight * below - zeros) * a.multiplier;
  }
  const ptrdiff_t at = static_cast<ptrdiff_t>(pixel) * s.out_stride + channel;
  const int count = min(kCodes, s.channels - channel);
#pragma unroll
  for (int i = 0; i < kCodes; ++i) {
    if (i >= count) break;
    store_result(t[i], a.rounding, a.float_output, a.y, at + i);
  }
}

}  // namespace

void cuda_bilinear_int8(const BilinearShape& s, const BilinearParams& params, const CudaBilinearData& data,
                        CudaStream stream) {
  const int codes = std::min(4, codes_per_thread({address(data.x), uintptr_t(s.in_stride)}));
  const unsigned vectors = blocks_for(s.channels, codes);
  const unsigned threads = thread_count(static_cast<long>(data.images) * s.out_h() * s.out_w() * vectors, "bilinear");
  const BilinearArgs args{s,
                          threads,
                          vectors,
                          UnsignedEdge(params.x),
                          params.multiplier,
                          CudaRounding(params.y),
                          params.y.float_output,
                          static_cast<const uint8_t*>(data.x),
                          static_cast<uint8_t*>(data.y)};
  const auto kernel = codes == 4 ? bilinear_kernel<4> : bilinear_kernel<1>;
  launch_overlapped(kernel, blocks_for(threads, kThreads), kThreads, 0, stream, args);
  check_launch("bilinear");
}

}  // namespace octet::kernels
