// SPDX-License-Identifier: Apache-2.0
#include "kernels/core/codes.cuh"
#include "kernels/core/launch.cuh"
#include "kernels/operators/copies.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;

/// A thread copies up to kCodes channels of an output pixel.
template <int kCodes>
__global__ void __launch_bounds__(kThreads)
    pick_kernel(PickShape s, CudaCopyData data, unsigned threads, unsigned vectors) {
  wait_for_previous_kernel();
  const unsigned thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= threads) return;
  const unsigned pixel = thread / vectors;
  const unsigned column = pixel % s.out_w, row = pixel / s.out_w % s.out_h, image = pixel / s.out_w / s.out_h;
  const int channel = thread % vectors * kCodes;
  const int first = s.first_channel + s.part * (row % s.factor_h * s.factor_w + column % s.factor_w);
  const int in_channel = s.groups == 1 ? channel : channel % s.groups * (s.channels / s.groups) + channel / s.groups;
  const ptrdiff_t from = static_cast<ptrdiff_t>(row / s.factor_h) * s.in_w + column / s.factor_w;
  const auto codes =
      CodeVector<kCodes>::load(data.x + image * data.x_image_stride + from * s.in_stride + first + in_channel);
  codes.store(data.y + static_cast<ptrdiff_t>(pixel) * s.out_stride + channel, s.channels - channel);
}

}  // namespace

void cuda_pick_int8(const PickShape& s, const CudaCopyData& data, CudaStream stream) {
  const int aligned =
      codes_per_thread({address(data.x), address(data.y), uintptr_t(data.x_image_stride), uintptr_t(s.in_stride),
                        uintptr_t(s.out_stride), uintptr_t(s.first_channel), uintptr_t(s.part)});
  const int codes = s.groups == 1 ? aligned : 1;
  const unsigned vectors = blocks_for(s.channels, codes);
  const unsigned threads = thread_count(static_cast<long>(data.images) * s.out_h * s.out_w * vectors, "pick");
  const auto kernel = codes == 16 ? pick_kernel<16> : codes == 4 ? pick_kernel<4> : pick_kernel<1>;
  launch_overlapped(kernel, blocks_for(threads, kThreads), kThreads, 0, stream, s, data, threads, vectors);
  check_launch("pick");
}

namespace {

/// A thread writes kCodes output channels, which are all copied or all new.
template <int kCodes>
__global__ void __launch_bounds__(kThreads)
    subsample_pad_kernel(SubsamplePadShape s, SubsamplePadParams p, CudaCopyData data, unsigned threads) {
  wait_for_previous_kernel();
  const unsigned thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= threads) return;
  const unsigned vectors = s.out_c / kCodes, pixel = thread / vectors;
  const unsigned column = pixel % s.out_w, row = pixel / s.out_w % s.out_h, image = pixel / s.out_w / s.out_h;
  const int channel = thread % vectors * kCodes, from = channel - (s.out_c - s.in_c) / 2;
  CodeVector<kCodes> codes;
  for (uint32_t& word : codes.word) word = p.zero_code * 0x01010101u;
  if (from >= 0 && from < s.in_c) {
    codes = CodeVector<kCodes>::load(
        data.x + image * data.x_image_stride +
        (static_cast<ptrdiff_t>(row) * s.stride_h * s.in_w + column * s.stride_w) * s.in_stride + from);
  }
  codes.store(data.y + static_cast<ptrdiff_t>(pixel) * s.out_stride + channel, kCodes);
}

}  // namespace

void cuda_subsample_pad_int8(const SubsamplePadShape& s, const SubsamplePadParams& params, const CudaCopyData& data,
                             CudaStream stream) {
  const int codes = codes_per_thread({address(data.x), address(data.y), uintptr_t(data.x_image_stride),
                                      uintptr_t(s.in_stride), uintptr_t(s.out_stride), uintptr_t(s.in_c),
                                      uintptr_t(s.out_c), uintptr_t((s.out_c - s.in_c) / 2)});
  const unsigned threads =
      thread_count(static_cast<long>(data.images) * s.out_h * s.out_w * (s.out_c / codes), "subsample_pad");
  const auto kernel = codes == 16  ? subsample_pad_kernel<16>
                      : codes == 4 ? subsample_pad_kernel<4>
                                   : subsample_pad_kernel<1>;
  launch_overlapped(kernel, blocks_for(threads, kThreads), kThreads, 0, stream, s, params, data, threads);
  check_launch("subsample_pad");
}

namespace {

/// A thread copies up to kCodes channels of a pixel.
template <int kCodes>
__global__ void __launch_bounds__(kThreads)
    copy_codes_kernel(CopyCodesShape s, unsigned threads, unsigned vectors, const uint8_t* x, uint8_t* y) {
  wait_for_previous_kernel();
  const unsigned thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= threads) return;
  const unsigned row = thread / vectors, image = row / s.pixels, pixel = row % s.pixels;
  const int channel = thread % vectors * kCodes;
  const auto codes =
      CodeVector<kCodes>::load(x + image * s.x_image_stride + static_cast<ptrdiff_t>(pixel) * s.x_stride + channel);
  codes.store(y + image * s.y_image_stride + static_cast<ptrdiff_t>(pixel) * s.y_stride + channel,
              s.channels - channel);
}

}  // namespace

void cuda_copy_codes(const CopyCodesShape& s, const void* x, void* y, CudaStream stream) {
  const int codes = codes_per_thread({address(x), address(y), uintptr_t(s.x_stride), uintptr_t(s.y_stride),
                                      uintptr_t(s.x_image_stride), uintptr_t(s.y_image_stride)});
  const unsigned vectors = blocks_for(s.channels, codes);
  const unsigned threads = thread_count(static_cast<long>(s.images) * s.pixels * vectors, "copy of codes");
  const auto kernel = codes == 16 ? copy_codes_kernel<16> : codes == 4 ? copy_codes_kernel<4> : copy_codes_kernel<1>;
  launch_overlapped(kernel, blocks_for(threads, kThreads), kThreads, 0, stream, s, threads, vectors,
                    static_cast<const uint8_t*>(x), static_cast<uint8_t*>(y));
  check_launch("copy of codes");
}

}  // namespace octet::kernels
