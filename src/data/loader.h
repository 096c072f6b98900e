// Batches for training and evaluation: worker threads decode and augment ahead of the consumer. The pixels of batch b
// of epoch e depend on seed, e and b only, never on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <vector>

#include "src/data/dataset.h"

namespace octet {

/// What happens to a picture on its way into a batch, in this order. Everything is 8-bit; normalization is the model's
/// input.
struct Transform {
  int channels = 3;
  int height = 0, width = 0;  ///< of the batch
  int resize = 0;  ///< shorter side, bilinear with antialiasing; 0: none; not with random_resized_crop in training
  /// The margin before the centre crop, half of what is left over: rounded to even, as torchvision's CenterCrop does,
  /// or down, as octet did before version 9 of its checkpoints.
  bool even_margin = false;
  // Training only:
  bool random_resized_crop = false;  ///< area 8..100 %, aspect 3/4..4/3 (Szegedy et al. 2014), to height x width
  double crop_area_min = 0.08;
  int pad = 0;                ///< zero padding on each side; then a random crop of height x width
  bool flip = false;          ///< horizontal, probability 1/2
  int cutout = 0;             ///< side of the square filled with the mean colour (DeVries & Taylor 2017); 0: none
  std::vector<uint8_t> fill;  ///< mean colour, one a channel
  uint8_t outside = 0;        ///< what the padding shows
};

/// In Batch::labels: a pixel that is kUnlabelled. What LibTorch's cross-entropy leaves out.
inline constexpr int64_t kNoLabel = -100;

struct Batch {
  explicit Batch(std::pmr::memory_resource* memory = std::pmr::get_default_resource()) : images(memory) {}
  int size = 0;
  std::pmr::vector<uint8_t> images;  ///< [size, height, width, channels]
  std::vector<int64_t> labels;       ///< [size], of Labels::pixels [size, height, width], kNoLabel among them
  std::vector<size_t> indices;       ///< into the data set
};

struct LoaderOptions {
  int batch_size = 64;
  bool train = false;  ///< shuffle, augment, drop the last short batch
  uint64_t seed = 0;
  int epoch = 0;
  int first_batch = 0;  ///< resume in the middle of an epoch
  /// Training: of several processes that share each batch of shares * batch_size images, the place of this one. It gets
  /// images share * batch_size and on of every batch, the very ones that one process would have there.
  int share = 0, shares = 1;
  int workers = 2;   ///< 0: decode in next()
  int prefetch = 4;  ///< batches ahead, at least 1
  /// Of the pixels, such as page-locked memory. next() hands over a batch without a copy when its own is the same.
  std::pmr::memory_resource* memory = std::pmr::get_default_resource();
};

class Loader {
 public:
  /// `indices` selects a subset of the data set, in order. The data set outlives the loader. Throws Error(usage) for
  /// options or a transform that make no sense, Error(data) when training has less than one batch.
  Loader(const Dataset& dataset, std::vector<size_t> indices, const Transform& transform, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  int batches() const;      ///< in the whole epoch, from batch 0
  bool next(Batch& batch);  ///< false at the end; rethrows a worker's error, with the picture's name; reuses memory
  double waited_seconds() const;  ///< time next() spent waiting for data

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The transform of a mask whose picture goes through `transform`: drawn with the same numbers, its pixels go where the
/// picture's go, and what the picture does not show is kUnlabelled. Throws Error(usage) for one that resizes: classes
/// have no mean.
Transform mask_transform(const Transform& transform);

/// Applies the evaluation transform to one picture: resize, centre crop; returns [height, width, channels].
Image evaluation_image(const Image& image, const Transform& transform);

}  // namespace octet
