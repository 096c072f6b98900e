// Pictures made by rule, for tests and trials without data: stripes whose direction, width and colour follow from the
// class, at a random place and with noise. A linear classifier does poorly on them, a small CNN well.
#pragma once

#include "src/data/dataset.h"

namespace octet {

class SyntheticDataset : public Dataset {
 public:
  /// `spec.seed` and `spec.split` name the pictures; integer arithmetic, so they are the same on every machine.
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

}  // namespace octet
