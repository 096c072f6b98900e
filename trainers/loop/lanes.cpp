#include "trainers/loop/lanes.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <exception>
#include <utility>

namespace octet {
namespace {

/// What is queued in `later` from now on begins after what is queued in `earlier`.
void follow(const c10::Stream& earlier, const c10::Stream& later) {
  c10::Event event(earlier.device_type());
  event.record(earlier);
  event.block(later);
}

}  // namespace

Lanes::Lanes(at::Device device) : device_(device) {}

Lanes::~Lanes() {
  try {
    join();
  } catch (const std::exception&) {  // the GPU has failed: nothing runs on it any more, and what throws now says so
  }
}

void Lanes::fork() {
  if (device_.is_cpu()) return;
  const c10::impl::VirtualGuardImpl gpu(device_.type());
  // One for all phases: LibTorch keeps cuBLAS's work space, some 70 MB, for every stream that it was used on.
  static const c10::Stream kSecond = gpu.getStreamFromGlobalPool(device_);
  streams_ = {gpu.getStream(device_), kSecond};
  follow(streams_[0], streams_[1]);
}

void Lanes::join() {
  const std::vector<c10::Stream> forked = std::exchange(streams_, {});
  if (!forked.empty()) follow(forked[1], forked[0]);
}

void Lanes::enter(int number, const Row& row, c10::OptionalStreamGuard& guard) const {
  if (device_.is_cpu()) return;
  guard.reset_stream(streams_[number % 2]);
  if (row.last_) row.last_->block(streams_[number % 2]);
}

void Lanes::leave(int number, Row& row) const {
  if (device_.is_cpu()) return;
  row.last_.emplace(device_.type());
  row.last_->record(streams_[number % 2]);
}

}  // namespace octet
