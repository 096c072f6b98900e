// SPDX-License-Identifier: Apache-2.0
// Steps that the GPU has not finished yet: how their sums reach the host.
#include <utility>

#include "src/train/model/step_graph.h"
#include "trainers/loop/step.h"
#if OCTET_CUDA
#include <array>

#include "src/cuda/memory.h"
#include "src/cuda/stream.h"
#endif

namespace octet {
namespace {

StepTotals totals_of(long step, const double* sums) {
  return {.step = step, .loss_sum = sums[0], .correct = sums[1], .cross_entropy_sum = sums[2]};
}

}  // namespace

#if OCTET_CUDA
/// Uses page-locked memory and events of our own: LibTorch's cannot be freed when the GPU has failed.
struct StepsUnderWay::OnGpu {
  struct Slot {
    long step = 0;
    Event begun, done;
    PinnedBuffer sums{StepTotals::kSums * sizeof(double)};
  };

  explicit OnGpu(at::Device device_) : device(device_) {}
  CudaStream stream() const { return current_stream(device); }
  Slot& slot(size_t number) { return slots[number % slots.size()]; }

  void epoch_begins() {
    epoch.record(stream());
    before = &epoch;
  }

  void begins() { slot(launched).begun.record(stream()); }

  void was_launched(long step, const double* sums) {
    Slot& launching = slot(launched++);
    launching.step = step;
    copy_to_host(launching.sums.data(), sums, launching.sums.bytes(), stream());
    launching.done.record(stream());
  }

  std::optional<StepTotals> next(bool wait) {
    const size_t ahead = launched - returned;
    if (ahead == 0) return std::nullopt;
    const Slot& oldest = slot(returned);
    if (wait || ahead > kMaxAhead) {
      oldest.done.wait();
    } else if (!oldest.done.reached()) {
      return std::nullopt;
    }
    StepTotals totals = totals_of(oldest.step, reinterpret_cast<const double*>(oldest.sums.data()));
    totals.idle_seconds = oldest.begun.milliseconds_since(*std::exchange(before, &oldest.done)) / 1e3;
    ++returned;
    return totals;
  }

  const at::Device device;
  // Slots for the steps not returned yet, for the one being launched and for the last one returned.
  std::array<Slot, kMaxAhead + 2> slots;
  Event epoch;
  const Event* before = nullptr;      // the end of the step returned last, or the beginning of the epoch
  size_t returned = 0, launched = 0;  // steps, over all epochs
};
#else
struct StepsUnderWay::OnGpu {  // never created
  explicit OnGpu(at::Device) {}
  void epoch_begins() {}
  void begins() {}
  void was_launched(long, const double*) {}
  std::optional<StepTotals> next(bool) { return std::nullopt; }
};
#endif

StepsUnderWay::StepsUnderWay(at::Device device, Ranks* ranks)
    : gpu_(device.is_cuda() ? std::make_unique<OnGpu>(device) : nullptr), due_(ranks, StepGraph::kWarmUps + 1) {}

StepsUnderWay::~StepsUnderWay() = default;

void StepsUnderWay::epoch_begins() {
  if (gpu_) gpu_->epoch_begins();
}

void StepsUnderWay::begins() {
  due_.begins();
  if (gpu_) gpu_->begins();
}

void StepsUnderWay::was_launched(long step, const at::Tensor& totals) {
  const double* sums = totals.const_data_ptr<double>();
  if (gpu_) {
    gpu_->was_launched(step, sums);
  } else {
    done_ = totals_of(step, sums);
  }
}

std::optional<StepTotals> StepsUnderWay::next(bool wait) {
  std::optional<StepTotals> totals = gpu_ ? gpu_->next(wait) : std::exchange(done_, std::nullopt);
  if (totals) due_.ended();
  return totals;
}

}  // namespace octet
