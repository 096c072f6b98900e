// SPDX-License-Identifier: Apache-2.0
// The labels of a batch as one tensor of integers, whatever has a class: images, pixels or boxes (Labels).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/base/random.h"
#include "src/data/dataset.h"
#include "src/data/place.h"
#include "src/data/transform.h"

namespace octet {

/// The label of what has no class: a pixel that is kUnlabelled, the place of a box where an image has fewer. LibTorch's
/// cross-entropy ignores this value.
inline constexpr int64_t kNoLabel = -100;

/// A box in a batch's labels: its class, or kNoLabel, then left, top, width and height in the network's input.
inline constexpr int kBoxValues = 5;
/// The places for boxes of a joined image, as many as YOLOX has; of more, those of the last images are left out.
inline constexpr int64_t kJoinedBoxes = 120;
inline constexpr int kMixedValues = 3;        ///< of a mixed image: its class, the other's, the other's weight in
inline constexpr double kMixedUnits = 65536;  ///< these parts
inline constexpr double kBoxUnits = 1024;     ///< these lengths are in 1024ths of a pixel

/// Writes the labels of training images.
class LabelWriter {
 public:
  virtual ~LabelWriter() = default;
  /// Returns the shape of one image's labels: [] of images, or if they are mixed [kMixedValues]; [height, width] of
  /// pixels, [boxes, kBoxValues] with as many boxes as any image of the data set has; of joined images more, up to
  /// kJoinedBoxes.
  virtual std::vector<int64_t> shape() const = 0;
  /// Writes the labels of an image of that size. Those of pixels and boxes move as training_pixels() moves pixels with
  /// the same random numbers.
  virtual void write_training(size_t index, const ImageSize& image, Random random, int64_t* out) const = 0;
  /// Writes the labels of a joined image. Not of images; of pixels those of a mosaic alone.
  virtual void write_joined(const std::vector<Tile>& tiles, int64_t* out) const = 0;
  /// Writes the labels of an image that is mixed with another, which has `weight` (0 .. 1) of it. Of images alone.
  virtual void write_mixed(size_t index, size_t other, double weight, int64_t* out) const;
  /// Writes the labels as evaluation_pixels() moves pixels. Boxes are not written: they are scored in their image.
  virtual void write(size_t index, const ImageSize& image, int64_t* out) const = 0;
  size_t count() const;  ///< how many integers an image has
};

/// Returns the writer for a data set whose images go through `transform`. The data set must outlive it.
std::unique_ptr<LabelWriter> label_writer(const Dataset& dataset, const Transform& transform);

}  // namespace octet
