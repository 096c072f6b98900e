#include "kernels/cuda_launch.h"
#include "kernels/cuda_overlap.h"
#include "kernels/cuda_vector.cuh"
#include "kernels/elementwise_int8/cuda_subsample_pad_int8.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;

/// One thread kCodes output channels, which are all copied or all new.
template <int kCodes>
__global__ void __launch_bounds__(kThreads)
    subsample_pad_kernel(SubsamplePadShape s, SubsamplePadParams p, CudaSubsamplePadData data, unsigned threads) {
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

void cuda_subsample_pad_int8(const SubsamplePadShape& s, const SubsamplePadParams& params,
                             const CudaSubsamplePadData& data, CudaStream stream) {
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

}  // namespace octet::kernels
