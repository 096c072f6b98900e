#include "kernels/cuda_launch.h"
#include "kernels/cuda_overlap.h"
#include "kernels/cuda_vector.cuh"
#include "kernels/elementwise_int8/cuda_pick_int8.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;

/// One thread up to kCodes channels of an output pixel.
template <int kCodes>
__global__ void __launch_bounds__(kThreads)
    pick_kernel(PickShape s, CudaPickData data, unsigned threads, unsigned vectors) {
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

void cuda_pick_int8(const PickShape& s, const CudaPickData& data, CudaStream stream) {
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

}  // namespace octet::kernels
