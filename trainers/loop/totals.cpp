#include "trainers/loop/totals.h"

#include <utility>

#if OCTET_CUDA
#include <array>

#include "src/cuda/memory.h"
#include "src/cuda/stream.h"
#include "src/model/device.h"
#endif

namespace octet {
namespace {

StepTotals totals_of(long step, const double* sums) {
  return {.step = step, .loss_sum = sums[0], .correct = sums[1], .cross_entropy_sum = sums[2]};
}

}  // namespace

#if OCTET_CUDA
/// Page-locked memory and events of our own: LibTorch's cannot be freed when the GPU has failed.
struct TotalsReader::OnGpu {
  struct Slot {
    long step = 0;
    Event begun, done;
    PinnedBuffer sums{StepTotals::kSums * sizeof(double)};
  };

  explicit OnGpu(at::Device device_) : device(device_) {}
  CudaStream stream() const { return current_stream(device); }
  Slot& slot(size_t number) { return slots[number % slots.size()]; }

  const at::Device device;
  // Of the steps not returned yet, the one being launched, and the one before all of them.
  std::array<Slot, kMostAhead + 2> slots;
  Event epoch;
  const Event* before = nullptr;      // the oldest step not returned yet: where the GPU was done with the last one
  size_t returned = 0, launched = 0;  // steps, over all epochs
};

TotalsReader::TotalsReader(at::Device device) : gpu_(device.is_cuda() ? std::make_unique<OnGpu>(device) : nullptr) {}

void TotalsReader::epoch_begins() {
  if (gpu_ == nullptr) return;
  gpu_->epoch.record(gpu_->stream());
  gpu_->before = &gpu_->epoch;
}

void TotalsReader::batch_is_ready() {
  if (gpu_ != nullptr) gpu_->slot(gpu_->launched).begun.record(gpu_->stream());
}

void TotalsReader::step_was_launched(long step, const at::Tensor& totals) {
  const double* sums = totals.const_data_ptr<double>();
  if (gpu_ == nullptr) {
    done_ = totals_of(step, sums);
    return;
  }
  OnGpu::Slot& slot = gpu_->slot(gpu_->launched++);
  slot.step = step;
  copy_to_host(slot.sums.data(), sums, slot.sums.bytes(), gpu_->stream());
  slot.done.record(gpu_->stream());
}

std::optional<StepTotals> TotalsReader::next(bool wait) {
  if (gpu_ == nullptr) return std::exchange(done_, std::nullopt);
  const size_t ahead = gpu_->launched - gpu_->returned;
  if (ahead == 0) return std::nullopt;
  const OnGpu::Slot& slot = gpu_->slot(gpu_->returned);
  if (wait || ahead > kMostAhead) {
    slot.done.wait();
  } else if (!slot.done.reached()) {
    return std::nullopt;
  }
  StepTotals totals = totals_of(slot.step, reinterpret_cast<const double*>(slot.sums.data()));
  totals.idle_seconds = slot.begun.milliseconds_since(*std::exchange(gpu_->before, &slot.done)) / 1e3;
  ++gpu_->returned;
  return totals;
}
#else
struct TotalsReader::OnGpu {};
TotalsReader::TotalsReader(at::Device) {}
void TotalsReader::epoch_begins() {}
void TotalsReader::batch_is_ready() {}
void TotalsReader::step_was_launched(long step, const at::Tensor& totals) {
  done_ = totals_of(step, totals.const_data_ptr<double>());
}
std::optional<StepTotals> TotalsReader::next(bool) { return std::exchange(done_, std::nullopt); }
#endif

TotalsReader::~TotalsReader() = default;

}  // namespace octet
