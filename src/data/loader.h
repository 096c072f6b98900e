// SPDX-License-Identifier: Apache-2.0
// Batches for training and evaluation: worker threads decode and augment ahead of the consumer. The pixels of batch b
// of epoch e depend on the seed, e and b only, never on the device or the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <vector>

#include "src/base/random.h"
#include "src/data/dataset.h"
#include "src/data/image_plan.h"
#include "src/data/labels.h"
#include "src/data/transform.h"

namespace octet {

/// Identifies the random numbers of one training epoch.
struct Epoch {
  uint64_t seed = 0;
  int number = 0;
  bool operator==(const Epoch&) const = default;
};

/// Shuffles `values` into the order in which the epoch shows them.
template <class T>
void shuffle_for(const Epoch& epoch, std::vector<T>& values) {
  Random({epoch.seed, static_cast<uint64_t>(epoch.number), 1}).shuffle(values);
}

/// Returns the random numbers that augment the image at `place` (from 0) of that order.
inline Random random_for(const Epoch& epoch, size_t place) {
  return Random({epoch.seed, static_cast<uint64_t>(epoch.number), 2, place});
}

struct Batch {
  explicit Batch(std::pmr::memory_resource* memory = std::pmr::get_default_resource()) : images(memory) {}
  int size = 0;
  ImageSize input;                    ///< of each image; Transform::multi_scale makes batches of other sizes
  std::pmr::vector<uint8_t> images;   ///< [size, height, width, channels]
  std::vector<int64_t> labels;        ///< [size, labels_shape]
  std::vector<int64_t> labels_shape;  ///< LabelWriter::shape()
  std::vector<size_t> indices;        ///< [size], into the data set
  std::vector<ImageSize> sizes;       ///< [size], of the images as they were read
  std::vector<CropPlan> plans;        ///< [size] in place of `images`, with LoaderOptions::plan and Fit::crop
  std::vector<PlacedPlan> placed;     ///< [size] in place of `images`, with LoaderOptions::plan and another fit
};

struct LoaderOptions {
  int batch_size = 64;
  bool train = false;  ///< shuffle, augment, drop the last short batch
  bool join = true;    ///< training: make images of several (mosaic, mixup), if the transform says so
  bool plan = false;   ///< training: images are planned (image_plan.h), for a GPU to decode
  uint64_t seed = 0;
  int epoch = 0;
  int first_batch = 0;  ///< the batch to start with, to resume in the middle of an epoch
  /// The number of this process, and of all, where several share each batch of shares * batch_size images in training.
  /// It gets the images from share * batch_size on of every batch, as a single process would have them there.
  int share = 0, shares = 1;
  int workers = 2;   ///< threads that decode; 0: next() decodes
  int prefetch = 4;  ///< batches that are decoded ahead, at least 1
  /// Holds the pixels, for example in page-locked memory. next() hands over a batch without a copy if the caller's
  /// batch has the same memory resource.
  std::pmr::memory_resource* memory = std::pmr::get_default_resource();
};

class Loader {
 public:
  /// `indices` selects a subset of the data set, in order. The data set must outlive the loader. Throws Error(usage)
  /// for options or a transform that make no sense, Error(data) when training has less than one batch.
  Loader(const Dataset& dataset, std::vector<size_t> indices, const Transform& transform, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  int batches() const;  ///< number of batches in the whole epoch, from batch 0
  /// Moves the next batch into `batch`, whose memory is used again, and returns true; returns false at the end of the
  /// epoch. Rethrows a worker's error, with the image's name.
  bool next(Batch& batch);
  double waited_seconds() const;  ///< the time that next() has spent waiting for data

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace octet
