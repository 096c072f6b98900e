// Shared memory of a block of the wgmma kernels and who may touch which part of it when: barriers (mbarrier) that
// copies, and groups of warps, arrive at. Include it in .cu files only.
#pragma once

#include "kernels/conv2d_int8/cuda/wgmma/args.cuh"
#include "kernels/conv2d_int8/cuda/wgmma/ptx.cuh"

namespace octet::kernels {

/// Where things lie: weights that stay, stages, tiles that end, barriers of turns, of stages, of ends and of weights.
struct WgmmaMemory {
  uint32_t held, stages, ends, barriers;

  __device__ __forceinline__ WgmmaMemory(const WgmmaPlan& plan, uint32_t shared)
      : held((shared + 1023) / 1024 * 1024),
        stages(held + plan.held_bytes),
        ends(stages + plan.stages * plan.stage_bytes),
        barriers(ends + plan.ends * plan.end_bytes) {}
  __device__ __forceinline__ uint32_t turn(int group) const { return barriers + group * 8; }
  /// Ends when a stage's copies are there.
  __device__ __forceinline__ uint32_t full(int stage) const { return barriers + 32 + stage * 16; }
  /// Ends when a stage may be written.
  __device__ __forceinline__ uint32_t empty(int stage) const { return full(stage) + 8; }
  /// The barriers of a place where tiles end (WgmmaEnd).
  __device__ __forceinline__ uint32_t end(int place) const { return full(kWgmmaMaxStages) + place * 24; }
  /// Ends when a chunk's weights, which stay, are there.
  __device__ __forceinline__ uint32_t weights_there(int chunk) const { return end(kWgmmaMaxEnds) + chunk * 8; }

  /// By one thread.
  __device__ __forceinline__ void init_barriers(const WgmmaPlan& plan, const WgmmaTile& tile) const {
    constexpr int kWarps = 4;  // of a group
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

/// The place in shared memory where part `part` of a group's tiles ends, counted from its first: its residual comes
/// there, its codes take the residual's place and leave from there. Each group has places of its own: its waits are
/// never a phase behind.
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
  /// Until the codes that ended here before have left; for the first at once.
  __device__ __forceinline__ void wait_free() const { barrier_wait(barriers_ + 16, ~use_ & 1); }
  /// By each warp that has written its codes.
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
