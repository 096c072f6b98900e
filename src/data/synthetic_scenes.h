// Pictures with a class for each pixel, made by rule: discs, boxes and triangles of fine stripes on a background of
// broad ones. Colours and contrasts are drawn alike for all of them, so that no pixel's colour gives its class away.
#pragma once

#include "src/data/dataset.h"

namespace octet {

class SyntheticScenes : public Dataset {
 public:
  /// `spec.seed` and `spec.split` name the pictures; integer arithmetic, so they are the same on every machine.
  /// synthetic_classes 2: background, shape; 4: background, disc, box, triangle. Throws Error(usage) for another
  /// number.
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
