// Parts of a sum that the blocks of one cluster compute, added up in the shared memory of the first of them: no memory
// of the device, no atomics. GPUs of compute capability 9.0 and newer. Include it in .cu files only.
#pragma once

#include "kernels/conv2d_int8/cuda/fragments.cuh"
#include "kernels/conv2d_int8/cuda/ptx.cuh"
#include "kernels/cuda_cluster.cuh"

namespace octet::kernels {

/// Part `part` of a sum: the block is the part-th of its cluster. `room` is shared memory for nothing else, of
/// room_bytes(parts).
template <int kThreads, class Sums>
class ClusterSum {
  static constexpr int kVectors = Sums::kM * Sums::kN;

 public:
  static constexpr int room_bytes(int parts) { return (parts - 1) * kThreads * kVectors * 16; }

  /// All threads of all blocks, early: add() waits until every block has begun, as only then its memory may be written.
  __device__ __forceinline__ static void begin() { arrive_at_cluster(); }

  /// All threads once. True in the block of part 0, whose sums are now whole.
  __device__ __forceinline__ static bool add(Sums& sums, int part, int parts, uint8_t* room) {
    wait_for_cluster();
    int4* mine = reinterpret_cast<int4*>(room) + threadIdx.x;  // [parts - 1][kVectors][kThreads]
    if (part > 0) {
      const uint32_t to = address_in_block(shared_address(mine + (part - 1) * kVectors * kThreads), 0);
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int32_t(&v)[4] = sums.value[i / Sums::kN][i % Sums::kN];
        store_to_cluster(to + i * kThreads * 16, make_int4(v[0], v[1], v[2], v[3]));
      }
    }
    arrive_at_cluster_with_writes();
    if (part > 0) return false;
    wait_for_cluster();
    for (int other = 0; other < parts - 1; ++other) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int4 v = mine[(other * kVectors + i) * kThreads];
        int32_t(&sum)[4] = sums.value[i / Sums::kN][i % Sums::kN];
        sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
      }
    }
    return true;
  }
};

}  // namespace octet::kernels
