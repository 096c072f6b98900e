// SPDX-License-Identifier: Apache-2.0
// Batches that the loader makes, or whose files nvJPEG decodes, sent to the GPU by a thread.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "kernels/operators/lookup.h"
#include "src/base/error.h"
#include "src/base/threads.h"
#include "src/cuda/memory.h"
#include "src/train/model/device.h"
#include "trainers/loop/batches.h"
#include "trainers/loop/gpu_images.h"

namespace octet {
namespace {

/// A batch that is being copied: the loader's page-locked memory and its copy on the GPU.
struct Slot {
  Batch batch{pinned_memory()};
  PinnedBuffer labels;
  at::Tensor device_pixels, device_labels;
  c10::Event copied{at::kCUDA}, consumed{at::kCUDA};
};

/// Returns the beginning of `memory` as a batch of the size of `batch`.
Batches::Labelled begin_of(const Batches::Labelled& memory, const Batch& batch) {
  std::vector<int64_t> labels = batch.labels_shape;
  labels.insert(labels.begin(), batch.size);
  const int64_t n = batch.size, c = memory.images.size(1), h = batch.input.height, w = batch.input.width;
  const auto count = static_cast<int64_t>(batch.labels.size());
  return {memory.images.as_strided({n, c, h, w}, {c * h * w, 1, c * w, c}),
          memory.labels.flatten().narrow(0, 0, count).view(labels)};
}

/// The loader fills page-locked memory; a thread sends batches ahead on a stream of its own; the GPU normalizes. With
/// data.decode: gpu the loader reads files, and that thread lets nvJPEG decode them. The next epoch's first batches are
/// sent while the last steps of an epoch and its validation run.
class UploadedBatches : public Batches {
 public:
  UploadedBatches(const RunData& data, const BatchesOptions& options, const GpuBatch& batch)
      : data_(data),
        options_(options),
        tables_(batch.tables),
        memory_(batch.memory),
        copies_(c10::impl::VirtualGuardImpl(at::kCUDA).getStreamFromGlobalPool(options.device)),
        slots_(data.decode == Decoding::gpu ? GpuImages::kLanes : 2) {
    if (data.decode == Decoding::gpu) gpu_images_.emplace(data);
    for (Slot& slot : slots_) {
      slot.labels = PinnedBuffer(memory_.labels.numel() * sizeof(int64_t));
      slot.device_pixels = at::empty({memory_.images.numel()}, memory_.images.options().dtype(at::kByte));
      slot.device_labels = at::empty({memory_.labels.numel()}, memory_.labels.options());
    }
  }

  void begin(const Epoch& epoch, long first_batch) override {
    if (sender_.joinable() && taken_ == end_ && first_batch == 0) {
      std::unique_lock lock(mutex_);
      // The thread begins to load the next epoch once it has sent all batches of the last one, if there is a next one.
      changed_.wait(lock, [this] { return error_ || loaded_ != end_ || !more(); });
      if (!error_ && loaded_ != end_ && epoch == epoch_) {
        end_ = loaded_;
        changed_.notify_all();
        return;
      }
    }
    stop();
    load(epoch, first_batch);
    epoch_ = epoch;
    sent_ = taken_ = 0;
    loaded_ = end_ = static_cast<size_t>(loader_->batches() - first_batch);
    error_ = nullptr;
    stopping_ = false;
    sender_ = start_thread([this] { send_all(); }, "the thread that sends batches to the GPU", "end other programs");
  }

  const Labelled* next() override {
    if (taken_ == end_) return nullptr;
    // nvJPEG now and then waits for all steps that are launched, so that only one is behind the running one: meanwhile
    // the batches that are sent are launched.
    if (gpu_images_ && taken_ > 0) slots_[(taken_ - 1) % slots_.size()].consumed.synchronize();
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return sent_ > taken_ || error_; });
      if (sent_ == taken_) std::rethrow_exception(error_);
    }
    Slot& slot = slots_[taken_ % slots_.size()];
    const c10::Stream stream = current();
    slot.copied.block(stream);
    batch_ = begin_of(memory_, slot.batch);
    const int channels = data_.train_transform.channels;
    kernels::cuda_look_up_image({channels, tables_.const_data_ptr<float>()}, batch_.images.numel() / channels,
                                slot.device_pixels.const_data_ptr<uint8_t>(), batch_.images.mutable_data_ptr<float>(),
                                current_stream(options_.device));
    batch_.labels.copy_(slot.device_labels.narrow(0, 0, batch_.labels.numel()).view(batch_.labels.sizes()),
                        /*non_blocking=*/true);
    slot.consumed.record(stream);
    {
      const std::lock_guard lock(mutex_);
      ++taken_;
    }
    changed_.notify_all();
    return &batch_;
  }

  ~UploadedBatches() override {  // a batch that was sent may still be copied
    stop();
    try {
      copies_.synchronize();
    } catch (const std::exception&) {  // the GPU failed, so nothing is copied any more
    }
  }

 private:
  /// What the thread does.
  void send_all() {
    const c10::DeviceGuard guard(options_.device);
    try {
      while (wait_for_room()) {
        send();
        const std::lock_guard lock(mutex_);
        ++sent_;
        changed_.notify_all();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
      changed_.notify_all();
    }
  }

  /// Waits until a slot is free and the loader has a batch for it; returns false if the thread is to end.
  bool wait_for_room() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] {
        return stopping_ || (sent_ < loaded_ ? sent_ < taken_ + slots_.size() : loaded_ == end_ && more());
      });
      if (stopping_) return false;
      if (sent_ < loaded_) return true;
      const Epoch next{epoch_.seed, epoch_.number + 1};
      lock.unlock();  // which next() takes for the batches that are sent: shuffling many images takes a while
      load(next, 0);
      lock.lock();
      epoch_ = next;
      loaded_ += static_cast<size_t>(loader_->batches());
      changed_.notify_all();
    }
  }

  void send() {
    Slot& slot = slots_[sent_ % slots_.size()];
    slot.copied.synchronize();  // the copy of its last batch; the loader now fills this memory again
    if (!loader_->next(slot.batch)) throw promise_error("a batch lacks in its epoch");
    std::copy(slot.batch.labels.begin(), slot.batch.labels.end(), reinterpret_cast<int64_t*>(slot.labels.data()));
    CudaStream stream = nullptr;
    {
      const c10::StreamGuard guard(copies_);
      stream = current_stream(options_.device);
    }
    const auto until_consumed = [&] { slot.consumed.block(copies_); };
    if (gpu_images_) {
      const int lane = static_cast<int>(sent_ % slots_.size());
      gpu_images_->make(slot.batch, lane, slot.device_pixels.mutable_data_ptr<uint8_t>(), stream, until_consumed);
      if (sent_ + 1 == loaded_) gpu_images_->tell();
    } else {
      until_consumed();
      copy_to_device(slot.device_pixels.mutable_data_ptr(), slot.batch.images.data(), slot.batch.images.size(), stream);
    }
    copy_to_device(slot.device_labels.mutable_data_ptr(), slot.labels.data(),
                   slot.batch.labels.size() * sizeof(int64_t), stream);
    slot.copied.record(copies_);
  }

  bool more() const { return epoch_.number + 1 < options_.epochs; }

  /// Lets the loader begin with an epoch. The thread alone uses the loader while it runs.
  void load(const Epoch& epoch, long first_batch) {
    LoaderOptions loader = options_.loader(data_, epoch, first_batch);
    loader.memory = pinned_memory();
    loader.plan = gpu_images_.has_value();
    loader_.emplace(*data_.train_set, data_.train, data_.train_transform, loader);
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (sender_.joinable()) sender_.join();
  }

  c10::Stream current() const { return c10::impl::VirtualGuardImpl(options_.device.type()).getStream(options_.device); }

  const RunData& data_;
  const BatchesOptions options_;
  const at::Tensor tables_;
  const Labelled memory_;  // of a batch of the largest size
  Labelled batch_;         // the last one: the beginning of that memory
  const c10::Stream copies_;
  std::vector<Slot> slots_;  // batch b of those sent is in slot b % slots_.size()
  std::optional<GpuImages> gpu_images_;
  std::thread sender_;

  std::mutex mutex_;  // guards what follows; counts are of batches since a loader was last begun anew
  std::condition_variable changed_;
  size_t sent_ = 0, taken_ = 0;
  size_t end_ = 0;     // of the epoch that began last
  size_t loaded_ = 0;  // the end of the loader's epoch: that one or the next
  Epoch epoch_;        // the loader's
  std::exception_ptr error_;
  bool stopping_ = false;
  std::optional<Loader> loader_;  // last: its threads end first
};

}  // namespace

std::unique_ptr<Batches> make_uploaded_batches(const RunData& data, const BatchesOptions& options,
                                               const GpuBatch& batch) {
  return std::make_unique<UploadedBatches>(data, options, batch);
}

}  // namespace octet
