#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <exception>
#include <optional>

#include "kernels/image_float/cuda_image_float.h"
#include "src/cuda/memory.h"
#include "src/model/device.h"
#include "trainers/batches/gpu_batches.h"

namespace octet {
namespace {

/// A batch on its way: the loader's page-locked memory and its copy on the GPU.
struct Slot {
  Batch batch{pinned_memory()};
  PinnedBuffer labels;
  at::Tensor device_pixels, device_labels;
  c10::Event copied{at::kCUDA}, consumed{at::kCUDA};
};

class UploadedBatches : public Batches {
 public:
  UploadedBatches(const RunData& data, const BatchesOptions& options)
      : data_(data),
        options_(options),
        tables_(normalization_tables(data, options.device)),
        batch_(empty_batch(data, options)),
        copies_(c10::impl::VirtualGuardImpl(at::kCUDA).getStreamFromGlobalPool(options.device)) {
    for (Slot& slot : slots_) {
      slot.labels = PinnedBuffer(batch_.labels.numel() * sizeof(int64_t));
      slot.device_pixels = at::empty({batch_.images.numel()}, batch_.images.options().dtype(at::kByte));
      slot.device_labels = at::empty_like(batch_.labels);
    }
  }

  void begin(const Epoch& epoch, long first_batch) override {
    loader_.emplace(*data_.train_set, data_.train, data_.train_transform,
                    LoaderOptions{.batch_size = options_.own_size(),
                                  .train = true,
                                  .seed = epoch.seed,
                                  .epoch = epoch.number,
                                  .first_batch = static_cast<int>(first_batch),
                                  .share = options_.rank,
                                  .shares = options_.ranks,
                                  .workers = data_.workers,
                                  .memory = pinned_memory()});
    sent_ = taken_ = 0;
  }

  const Labelled* next() override {
    if (sent_ == taken_) fetch_ahead();  // the first of the epoch
    if (sent_ == taken_) return nullptr;
    Slot& slot = slots_[taken_++ % slots_.size()];
    const c10::Stream stream = current();
    slot.copied.block(stream);
    const int channels = data_.train_transform.channels;
    kernels::cuda_look_up_image({channels, tables_.const_data_ptr<float>()}, batch_.images.numel() / channels,
                                slot.device_pixels.const_data_ptr<uint8_t>(), batch_.images.mutable_data_ptr<float>(),
                                current_stream(options_.device));
    batch_.labels.copy_(slot.device_labels, /*non_blocking=*/true);
    slot.consumed.record(stream);
    return &batch_;
  }

  ~UploadedBatches() override {  // a batch fetched ahead may still be on its way
    try {
      copies_.synchronize();
    } catch (const std::exception&) {  // the GPU failed: nothing is on its way any more
    }
  }

  void fetch_ahead() override {
    Slot& slot = slots_[sent_ % slots_.size()];
    slot.copied.synchronize();  // two batches ago: the loader gets this memory back to fill it again
    if (!loader_->next(slot.batch)) return;
    std::copy(slot.batch.labels.begin(), slot.batch.labels.end(), reinterpret_cast<int64_t*>(slot.labels.data()));
    slot.consumed.block(copies_);
    CudaStream stream = nullptr;
    {
      const c10::StreamGuard guard(copies_);
      stream = current_stream(options_.device);
    }
    copy_to_device(slot.device_pixels.mutable_data_ptr(), slot.batch.images.data(), slot.batch.images.size(), stream);
    copy_to_device(slot.device_labels.mutable_data_ptr(), slot.labels.data(), slot.labels.bytes(), stream);
    slot.copied.record(copies_);
    ++sent_;
  }

 private:
  c10::Stream current() const { return c10::impl::VirtualGuardImpl(options_.device.type()).getStream(options_.device); }

  const RunData& data_;
  const BatchesOptions options_;
  const at::Tensor tables_;
  const Labelled batch_;
  const c10::Stream copies_;
  std::array<Slot, 2> slots_;  // batch number b of those sent is in slot b % 2
  size_t sent_ = 0, taken_ = 0;
  std::optional<Loader> loader_;  // last: its threads end first
};

}  // namespace

std::unique_ptr<Batches> uploaded_batches(const RunData& data, const BatchesOptions& options) {
  return std::make_unique<UploadedBatches>(data, options);
}

}  // namespace octet
