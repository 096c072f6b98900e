// Parts of a sum that the blocks of one cluster compute, added up in the shared memory of the first of them: no memory
// of the device, no atomics. GPUs of compute capability 9.0 and newer. Include it in .cu files only.
#pragma once

#include "kernels/conv2d_int8/cuda/fragments.cuh"
#include "kernels/conv2d_int8/cuda/ptx.cuh"

namespace octet::kernels {

/// Part `part` of a sum: the block is the part-th of its cluster. `room` is shared memory for nothing else, of
/// room_bytes(parts).
template <int kThreads, class Sums>
class ClusterSum {
  static constexpr int kVectors = Sums::kM * Sums::kN;

 public:
  static constexpr int room_bytes(int parts) { return (parts - 1) * kThreads * kVectors * 16; }

  /// All threads of all blocks, early: add() waits until every block has begun, as only then its memory may be written.
  __device__ __forceinline__ static void begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
  }

  /// All threads once. True in the block of part 0, whose sums are now whole.
  __device__ __forceinline__ static bool add(Sums& sums, int part, int parts, uint8_t* room) {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    int4* mine = reinterpret_cast<int4*>(room) + threadIdx.x;  // [parts - 1][kVectors][kThreads]
    if (part > 0) {
      uint32_t to;  // the same place in the first block
      asm("mapa.shared::cluster.u32 %0, %1, 0;"
          : "=r"(to)
          : "r"(shared_address(mine + (part - 1) * kVectors * kThreads)));
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int32_t(&v)[4] = sums.value[i / Sums::kN][i % Sums::kN];
        asm volatile("st.shared::cluster.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(to + i * kThreads * 16), "r"(v[0]),
                     "r"(v[1]), "r"(v[2]), "r"(v[3])
                     : "memory");
      }
    }
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    if (part > 0) return false;
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    for (int other = 0; other < parts - 1; ++other) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int4 v = mine[(other * kVectors + i) * kThreads];
        int32_t(&sum)[4] = sums.value[i / Sums::kN][i % Sums::kN];
        sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
      }
    }
#endif
    return true;
  }
};

}  // namespace octet::kernels
