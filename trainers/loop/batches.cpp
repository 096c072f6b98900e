// SPDX-License-Identifier: Apache-2.0
#include "trainers/loop/batches.h"

#include <ATen/ops/from_blob.h>

#include <optional>

#include "src/base/error.h"
#include "src/train/model/model.h"
#include "trainers/loop/input_tensors.h"

namespace octet {
namespace {

/// Batches that the loader makes and normalizes on the CPU.
class LoadedBatches : public Batches {
 public:
  LoadedBatches(const RunData& data, const BatchesOptions& options) : data_(data), options_(options) {}

  void begin(const Epoch& epoch, long first_batch) override {
    loader_.emplace(*data_.train_set, data_.train, data_.train_transform,
                    loader_options(data_, options_, epoch, first_batch));
  }

  const Labelled* next() override {
    if (!loader_->next(batch_)) return nullptr;
    const Shape shape{data_.train_transform.channels, batch_.input.height, batch_.input.width};
    labelled_.images = images_to_tensor({batch_.images.data(), batch_.size, shape}, data_.mean, data_.std);
    std::vector<int64_t> labels = batch_.labels_shape;
    labels.insert(labels.begin(), batch_.size);
    labelled_.labels = at::from_blob(batch_.labels.data(), labels, at::TensorOptions(at::kLong));
    return &labelled_;
  }

  double waited_seconds() const override { return loader_->waited_seconds(); }

 private:
  const RunData& data_;
  const BatchesOptions options_;
  std::optional<Loader> loader_;
  Batch batch_;
  Labelled labelled_;
};

}  // namespace

std::vector<int64_t> labels_shape(const RunData& data, int images, const Transform& transform) {
  std::vector<int64_t> shape = label_writer(*data.train_set, transform)->shape();
  shape.insert(shape.begin(), images);
  return shape;
}

Transform largest_input(Transform transform) {
  const PictureSize largest = input_sizes(transform).back();
  transform.height = largest.height;
  transform.width = largest.width;
  return transform;
}

LoaderOptions loader_options(const RunData& data, const BatchesOptions& options, const Epoch& epoch, long first_batch) {
  return {.batch_size = options.own_size(),
          .train = true,
          .join = epoch.number < options.joining_epochs,
          .seed = epoch.seed,
          .epoch = epoch.number,
          .first_batch = static_cast<int>(first_batch),
          .share = options.rank,
          .shares = options.ranks,
          .workers = data.workers};
}

void require_batches(const RunData& data, const BatchesOptions& options) {
  if (options.device.is_cpu() && data.decode == Decoding::gpu)
    throw usage_error("data.decode: gpu, but this run trains on the CPU; use cpu (--set data.decode=cpu)");
#if OCTET_CUDA
  if (data.decode == Decoding::gpu) require_decoding(data);
  if (options.device.is_cuda() && options.resident_images == ResidentImages::on) require_resident(data, options.device);
#endif
}

std::unique_ptr<Batches> make_batches(const RunData& data, const BatchesOptions& options) {
  require_batches(data, options);
#if OCTET_CUDA
  if (options.device.is_cuda()) return make_gpu_batches(data, options);
#endif
  return std::make_unique<LoadedBatches>(data, options);
}

at::Tensor network_input(const Batch& batch, const RunData& data, at::Device device) {
  if (const auto* ready = dynamic_cast<const InputTensors*>(data.train_set.get()))
    return ready->values(batch.indices, device);
  const Shape shape{data.evaluation_transform.channels, batch.input.height, batch.input.width};
  return images_to_tensor({batch.images.data(), batch.size, shape}, data.mean, data.std, device);
}

void for_inputs(const RunData& data, const Dataset& images, const std::vector<size_t>& indices, int batch_size,
                at::Device device, const std::function<void(const at::Tensor& x)>& take) {
  Loader loader(images, indices, data.evaluation_transform, {.batch_size = batch_size, .workers = data.workers});
  for (Batch batch; loader.next(batch);) take(network_input(batch, data, device));
}

std::vector<size_t> evenly_spaced(const std::vector<size_t>& indices, size_t count) {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < count; ++i) chosen.push_back(indices[i * indices.size() / count]);
  return chosen;
}

}  // namespace octet
