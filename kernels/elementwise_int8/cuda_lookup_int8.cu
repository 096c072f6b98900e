// Bound by memory: a thread takes 16 neighbouring bytes where the layout allows. The table comes with the launch and
// lies in shared memory, where every lane reads another entry.
#include "kernels/cuda_launch.h"
#include "kernels/cuda_overlap.h"
#include "kernels/cuda_vector.cuh"
#include "kernels/elementwise_int8/cuda_lookup_int8.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;  // one entry of the table each

template <int kCodes>
__global__ void __launch_bounds__(kThreads)
    lookup_kernel(const __grid_constant__ LookupTable table, const uint8_t* x, unsigned threads, uint8_t* y) {
  __shared__ uint8_t bytes[kThreads];
  bytes[threadIdx.x] = table.byte[threadIdx.x];
  __syncthreads();
  const unsigned thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= threads) return;
  wait_for_previous_kernel();
  const ptrdiff_t at = static_cast<ptrdiff_t>(thread) * kCodes;
  using Vector = CodeVector<kCodes>;
  Vector codes = Vector::load(x + at);
#pragma unroll
  for (uint32_t& word : codes.word) {
    word = bytes[word & 255] | bytes[word >> 8 & 255] << 8 | bytes[word >> 16 & 255] << 16 |
           static_cast<uint32_t>(bytes[word >> 24]) << 24;
  }
  codes.store(y + at, kCodes);
}

}  // namespace

void cuda_lookup_int8(const LookupTable& table, const uint8_t* x, long count, uint8_t* y, CudaStream stream) {
  const int codes = codes_per_thread({address(x), address(y), uintptr_t(count)});
  const unsigned threads = thread_count(count / codes, "lookup");
  const auto kernel = codes == 16 ? lookup_kernel<16> : codes == 4 ? lookup_kernel<4> : lookup_kernel<1>;
  launch_overlapped(kernel, blocks_for(threads, kThreads), kThreads, 0, stream, table, x, threads, y);
  check_launch("lookup");
}

}  // namespace octet::kernels
