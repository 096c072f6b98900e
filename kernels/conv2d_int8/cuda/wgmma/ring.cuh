// Shared memory of a block of the wgmma kernels and who may touch which part of it when: barriers (mbarrier) that
// copies, and groups of warps, arrive at. Include it in .cu files only.
#pragma once

#include "kernels/conv2d_int8/cuda/wgmma/args.cuh"
#include "kernels/conv2d_int8/cuda/wgmma/ptx.cuh"

namespace octet::kernels {

/// Where things lie: weights that stay, stages, barriers of turns, of stages and of weights.
struct WgmmaMemory {
  uint32_t held, stages, barriers;

  __device__ __forceinline__ WgmmaMemory(const WgmmaPlan& plan, uint32_t shared)
      : held((shared + 1023) / 1024 * 1024),
        stages(held + plan.held_bytes),
        barriers(stages + plan.stages * plan.stage_bytes) {}
  __device__ __forceinline__ uint32_t turn(int group) const { return barriers + group * 8; }
  /// Ends when a stage's copies are there.
  __device__ __forceinline__ uint32_t full(int stage) const { return barriers + 32 + stage * 16; }
  /// Ends when a stage may be written.
  __device__ __forceinline__ uint32_t empty(int stage) const { return full(stage) + 8; }
  /// Ends when a chunk's weights, which stay, are there.
  __device__ __forceinline__ uint32_t weights_there(int chunk) const { return full(kWgmmaMaxStages) + chunk * 8; }

  /// By one thread.
  __device__ __forceinline__ void init_barriers(const WgmmaPlan& plan, int groups) const {
    constexpr int kWarps = 4;  // of a group
    for (int group = 0; group < groups; ++group) barrier_init(turn(group), kWarps);
    for (int stage = 0; stage < plan.stages; ++stage) {
      barrier_init(full(stage), 1);
      barrier_init(empty(stage), kWarps);
    }
    if (plan.held_bytes > 0) {
      for (int chunk = 0; chunk < plan.chunks; ++chunk) barrier_init(weights_there(chunk), 1);
    }
    barrier_init_fence();
  }
};

/// The stages, in turn.
class WgmmaRing {
 public:
  /// At stage `position`, counted from the block's first.
  __device__ __forceinline__ WgmmaRing(const WgmmaArgs& p, const WgmmaMemory& memory, int position)
      : plan_(p.plan),
        memory_(memory),
        phase_(p.by_stages.divide(position)),
        stage_(position - phase_ * plan_.stages) {}

  __device__ __forceinline__ uint32_t x() const { return memory_.stages + stage_ * plan_.stage_bytes; }
  __device__ __forceinline__ uint32_t weight() const { return x() + plan_.x_bytes; }
  __device__ __forceinline__ uint32_t full() const { return memory_.full(stage_); }
  __device__ __forceinline__ void wait_full() const { barrier_wait(full(), phase_ & 1); }
  /// Of a stage never used: at once.
  __device__ __forceinline__ void wait_empty() const { barrier_wait(memory_.empty(stage_), ~phase_ & 1); }
  /// Gives back the stage before this one.
  __device__ __forceinline__ void release_last() const {
    const int last = stage_ == 0 ? plan_.stages - 1 : stage_ - 1;
    if (threadIdx.x % 32 == 0) barrier_arrive(memory_.empty(last));
  }
  __device__ __forceinline__ void next() {
    if (++stage_ == plan_.stages) stage_ = 0, ++phase_;
  }

 private:
  const WgmmaPlan& plan_;
  const WgmmaMemory& memory_;
  int phase_, stage_;
};

/// Groups of four warps that read the stages of one ring in turn. A wait for a barrier tells phases only by their
/// parity, so that a group may wait for its stages only when the others are through with all that come before.
template <int kGroups>
struct GroupTurns {
  const WgmmaMemory& memory;

  /// Waits until it is group `group`'s turn, its `round`-th, counted from 0; group 0 begins.
  __device__ __forceinline__ void wait(int group, int round) const {
    barrier_wait(memory.turn(group), (group == 0 ? round + 1 : round) & 1);
  }
  __device__ __forceinline__ void pass(int group) const {
    if (threadIdx.x % 32 == 0) barrier_arrive(memory.turn(group + 1 == kGroups ? 0 : group + 1));
  }
};

}  // namespace octet::kernels
