// The data of a run, opened as its recipe says. No LibTorch: `octet evaluate` and `octet compare` need it too.
#pragma once

#include <memory>
#include <vector>

#include "src/eval/evaluate.h"
#include "src/recipe/recipe.h"

namespace octet {

/// Training, calibration and validation are three separate index lists. Calibration images are training images; no
/// training image is a validation image, unless the recipe gives one split for both (validates_on_training_images).
struct RunData {
  std::shared_ptr<const Dataset> train_set, validation_set;  ///< the same object when validation is split off
  std::vector<size_t> train, calibration;                    ///< into train_set, ascending
  std::vector<size_t> validation;                            ///< into validation_set, ascending
  Transform train_transform, evaluation_transform;
  std::vector<float> mean, std;  ///< of the normalization, one a channel
  int workers = 2;
  /// data.train and data.validation name the same images, as with a sample that has no training part: fine for PTQ's
  /// calibration on a few of them, but accuracies are not those of unseen images.
  bool validates_on_training_images = false;

  int classes() const { return static_cast<int>(train_set->class_names().size()); }
  /// The first `images` validation images (0: all), as evaluate() and compare() take them.
  EvaluationSet evaluation_set(long images = 0) const;
};

/// Said to the user and in the report when validates_on_training_images.
inline constexpr const char* kSameImages =
    "data.train and data.validation are the same images: calibration (and training) saw what is validated on";

/// Opens the data sets and chooses the three lists by recipe.seed. Throws Error(data) as the readers do, and
/// Error(usage) when data.channels does not fit the images.
RunData open_run_data(const Recipe& recipe);

}  // namespace octet
