// SPDX-License-Identifier: Apache-2.0
// The batches of a training phase, on the device where the network trains.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "src/data/dataset.h"
#include "src/data/loader.h"
#include "src/recipe/run.h"

namespace octet {

/// The pixels of batch b depend on seed, epoch and b only: every source on every device gives the same.
class Batches {
 public:
  virtual ~Batches() = default;
  virtual void begin(const Epoch& epoch, long first_batch) = 0;

  struct Labelled {
    at::Tensor images;  ///< normalized float [N, C, H, W], channels-last
    at::Tensor labels;  ///< int64 [N, LabelWriter::shape()]
  };
  /// Returns the next batch of the epoch, or null at its end. On a GPU all batches of a size are in the same memory,
  /// made after the work that the current stream has queued so far; the host does not wait for that work, but with
  /// data.decode: gpu for what was queued before the last batch.
  virtual const Labelled* next() = 0;
  virtual double waited_seconds() const { return 0; }  ///< that next() waited for images on the CPU, since begin()
};

struct BatchesOptions {
  int batch_size = 0;  ///< of all ranks together
  at::Device device = at::kCPU;
  ResidentImages resident_images = ResidentImages::automatic;  ///< the recipe's cuda.resident_images
  int rank = 0, ranks = 1;  ///< which share of every batch to make; ranks divides batch_size
  int joining_epochs = 0;   ///< the first epochs, which may have images of several (mosaic, mixup)
  int epochs = 0;           ///< of the phase; a GPU's batches of the next one are begun before it, if there is one

  int own_size() const { return batch_size / ranks; }  ///< N of this rank's batches

  /// Returns what a source of batches asks its loader for: this rank's share of the epoch, from `first_batch` on.
  LoaderOptions loader(const RunData& data, const Epoch& epoch, long first_batch) const {
    return {.batch_size = own_size(),
            .train = true,
            .join = epoch.number < joining_epochs,
            .seed = epoch.seed,
            .epoch = epoch.number,
            .first_batch = static_cast<int>(first_batch),
            .share = rank,
            .shares = ranks,
            .workers = data.workers};
  }
};

/// Returns the shape of the labels of `images` images that go through `transform`: [images, LabelWriter::shape()].
std::vector<int64_t> labels_shape(const RunData& data, int images, const Transform& transform);

/// Returns the transform for the largest of its input_sizes(), which is its own size without multi_scale.
Transform largest_input(Transform transform);

/// Throws Error(usage) when resident_images is on, or data.decode gpu, and the transform, the images or the GPU's
/// memory do not allow it.
void require_batches(const RunData& data, const BatchesOptions& options);

/// Makes the source of batches; `data` must outlive it. On a GPU they are made from images that stay there, where that
/// is possible and they fit (with "auto" into a quarter of the free memory), else uploaded from the CPU. Throws as
/// require_batches() does.
std::unique_ptr<Batches> make_batches(const RunData& data, const BatchesOptions& options);

// The sources of batches on a GPU.

struct GpuBatch {
  at::Tensor tables;         ///< float [channels, 256]: the value of each pixel, normalize_pixel()
  Batches::Labelled memory;  ///< for one batch of the largest size
};

/// Returns batches made from images that stay on the GPU (resident_batches.cpp).
std::unique_ptr<Batches> make_resident_batches(const RunData& data, const BatchesOptions& options,
                                               const GpuBatch& batch);

/// Returns batches that a thread sends to the GPU (uploaded_batches.cpp).
std::unique_ptr<Batches> make_uploaded_batches(const RunData& data, const BatchesOptions& options,
                                               const GpuBatch& batch);

// Images for purposes other than training:

/// Returns the images of a loader's batch as the network reads them: normalized float [N, C, H, W], channels-last. Of
/// InputTensors these are the values themselves.
at::Tensor network_input(const Batch& batch, const RunData& data, at::Device device);

/// Calls take(x) with these images of one of the run's data sets as evaluation prepares them, in batches of
/// network_input().
void for_inputs(const RunData& data, const Dataset& images, const std::vector<size_t>& indices, int batch_size,
                at::Device device, const std::function<void(const at::Tensor& x)>& take);

/// Returns `count` of the indices, evenly spaced over the list: those of a folder are sorted by class.
std::vector<size_t> evenly_spaced(const std::vector<size_t>& indices, size_t count);

}  // namespace octet
