// SPDX-License-Identifier: Apache-2.0
// The shared memory of a block of the wgmma kernels, and when which warps may access which part of it: barriers
// (mbarrier) at which copies and groups of warps arrive. Include it in .cu files only.
#pragma once

#include "kernels/conv/cuda/wgmma/args.cuh"
#include "kernels/conv/cuda/wgmma/ptx.cuh"

namespace octet::kernels {

/// The addresses of the weights that stay, the stages, the buffers of tiles that are finished (WgmmaEnd), the barriers
/// of turns, stages, buffers and weights, and the table of a look-up.
struct WgmmaMemory {
  uint32_t held, stages, ends, barriers, table;

  __device__ __forceinline__ WgmmaMemory(const WgmmaPlan& plan, uint32_t shared)
      : held((shared + 1023) / 1024 * 1024),
        stages(held + plan.held_bytes),
        ends(stages + plan.stages * plan.stage_bytes),
        barriers(ends + plan.ends * plan.end_bytes),
        table(barriers + kWgmmaBarrierBytes) {}
  /// Returns the barrier at which group `group` waits for its turn.
  __device__ __forceinline__ uint32_t turn(int group) const { return barriers + group * 8; }
  /// Returns the barrier whose phase ends when a stage's copies have arrived.
  __device__ __forceinline__ uint32_t full(int stage) const { return barriers + 32 + stage * 16; }
  /// Returns the barrier whose phase ends when a stage may be overwritten.
  __device__ __forceinline__ uint32_t empty(int stage) const { return full(stage) + 8; }
  /// Returns the first of the three barriers of a WgmmaEnd.
  __device__ __forceinline__ uint32_t end(int place) const { return full(kWgmmaMaxStages) + place * 24; }
  /// Returns the barrier whose phase ends when the weights of a chunk, which stay, have arrived.
  __device__ __forceinline__ uint32_t weights_there(int chunk) const { return end(kWgmmaMaxEnds) + chunk * 8; }

  /// Must be called by one thread.
  __device__ __forceinline__ void init_barriers(const WgmmaPlan& plan, const WgmmaTile& tile) const {
    constexpr int kWarps = 4;  // warps of a group
    for (int group = 0; group < tile.groups; ++group) barrier_init(turn(group), kWarps);
    for (int stage = 0; stage < plan.stages; ++stage) {
      barrier_init(full(stage), 1);
      barrier_init(empty(stage), tile.shared ? tile.groups * kWarps : kWarps);
    }
    for (int place = 0; place < plan.ends; ++place) {
      barrier_init(end(place), 1);
      barrier_init(end(place) + 8, kWarps);
      barrier_init(end(place) + 16, 1);
    }
    if (plan.held_bytes > 0) {
      for (int chunk = 0; chunk < plan.chunks; ++chunk) barrier_init(weights_there(chunk), 1);
    }
    barrier_init_fence();
  }
};

/// Steps through the stages, which are reused in turn.
class WgmmaRing {
 public:
  /// Begins at the block's stage number `position`, counted from 0 over all reuses.
  __device__ __forceinline__ WgmmaRing(const WgmmaArgs& p, const WgmmaMemory& memory, int position)
      : plan_(p.plan),
        memory_(memory),
        phase_(p.by_stages.divide(position)),
        stage_(position - phase_ * plan_.stages) {}

  __device__ __forceinline__ uint32_t x() const { return memory_.stages + stage_ * plan_.stage_bytes; }
  __device__ __forceinline__ uint32_t weight() const { return x() + plan_.x_bytes; }
  __device__ __forceinline__ uint32_t full() const { return memory_.full(stage_); }
  __device__ __forceinline__ void wait_full() const { barrier_wait(full(), phase_ & 1); }
  /// Returns immediately for a stage that was never used.
  __device__ __forceinline__ void wait_empty() const { barrier_wait(memory_.empty(stage_), ~phase_ & 1); }
  /// Releases the stage before this one for new copies.
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

/// The buffer in shared memory where part `part` of a group's tiles, counted from the group's first, is finished. The
/// residual is copied into it, the codes replace the residual, and are stored from it. Each group has its own buffers,
/// so that its waits are never a phase behind.
class WgmmaEnd {
 public:
  __device__ __forceinline__ WgmmaEnd(const WgmmaPlan& plan, const WgmmaMemory& memory, int group, int part) {
    const int place = (group << plan.ends_log) + (part & ((1 << plan.ends_log) - 1));
    rows_ = memory.ends + place * plan.end_bytes, barriers_ = memory.end(place), use_ = part >> plan.ends_log;
  }
  __device__ __forceinline__ uint32_t rows() const { return rows_; }
  __device__ __forceinline__ uint32_t residual_there() const { return barriers_; }
  __device__ __forceinline__ void wait_residual() const { barrier_wait(barriers_, use_ & 1); }
  __device__ __forceinline__ void wait_codes() const { barrier_wait(barriers_ + 8, use_ & 1); }
  /// Waits until the codes that were in the buffer before have been stored; returns immediately for the first.
  __device__ __forceinline__ void wait_free() const { barrier_wait(barriers_ + 16, ~use_ & 1); }
  /// Must be called by each warp that has written its codes.
  __device__ __forceinline__ void codes_written() const {
    let_copies_see_writes();
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(barriers_ + 8);
  }
  __device__ __forceinline__ void free() const { barrier_arrive(barriers_ + 16); }

 private:
  uint32_t rows_, barriers_;
  int use_;
};

/// Lets groups of four warps read the stages of one ring in turn. A wait distinguishes phases only by their parity, so
/// a group may wait for its stages only when the other groups have finished all earlier ones.
template <int kGroups>
struct GroupTurns {
  const WgmmaMemory& memory;

  /// Waits for the turn number `round` (from 0) of group `group`; group 0 begins.
  __device__ __forceinline__ void wait(int group, int round) const {
    barrier_wait(memory.turn(group), (group == 0 ? round + 1 : round) & 1);
  }
  __device__ __forceinline__ void pass(int group) const {
    if (threadIdx.x % 32 == 0) barrier_arrive(memory.turn(group + 1 == kGroups ? 0 : group + 1));
  }
};

}  // namespace octet::kernels
