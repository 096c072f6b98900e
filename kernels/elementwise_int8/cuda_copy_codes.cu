#include "kernels/cuda_launch.h"
#include "kernels/cuda_overlap.h"
#include "kernels/cuda_vector.cuh"
#include "kernels/elementwise_int8/cuda_copy_codes.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;

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
