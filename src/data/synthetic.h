// SPDX-License-Identifier: Apache-2.0
// Images made by rule, for tests and trials without data. They are made in integer arithmetic from spec.seed,
// spec.split and the index, so they are the same on every machine.
#pragma once

#include "src/data/dataset.h"

namespace octet {

/// Images with one class each: stripes whose direction, width and colour follow from the class, at a random place and
/// with noise. A linear classifier does poorly on them, a small CNN well.
class SyntheticDataset : public Dataset {
 public:
  explicit SyntheticDataset(const DatasetSpec& spec);
  size_t size() const override { return static_cast<size_t>(spec_.synthetic_size); }
  int channels() const override { return spec_.channels; }
  int label(size_t index) const override { return static_cast<int>(index) % spec_.synthetic_classes; }
  Image read(size_t index) const override;
  const std::vector<std::string>& class_names() const override { return class_names_; }
  std::optional<PictureSize> common_size() const override { return PictureSize{spec_.image_size, spec_.image_size}; }
  std::string describe(size_t index) const override;

 private:
  DatasetSpec spec_;
  std::vector<std::string> class_names_;
};

/// Images with a class for each pixel: discs, boxes and triangles of fine stripes on a background of broad ones.
/// Colours and contrasts are drawn alike for all of them, so that no pixel's colour tells its class.
class SyntheticScenes : public Dataset {
 public:
  /// With synthetic_classes 2 the classes are background and shape, with 4 background, disc, box and triangle. Throws
  /// Error(usage) for another number.
  explicit SyntheticScenes(const DatasetSpec& spec);
  size_t size() const override { return static_cast<size_t>(spec_.synthetic_size); }
  int channels() const override { return spec_.channels; }
  Labels labels() const override { return Labels::pixels; }
  int label(size_t index) const override;  ///< throws Error(usage): there is none
  Image read(size_t index) const override;
  Image mask(size_t index) const override;
  const std::vector<std::string>& class_names() const override { return class_names_; }
  std::optional<PictureSize> common_size() const override { return PictureSize{spec_.image_size, spec_.image_size}; }
  std::string describe(size_t index) const override;

 private:
  struct Scene;
  Scene scene(size_t index) const;

  DatasetSpec spec_;
  std::vector<std::string> class_names_;
};

}  // namespace octet
