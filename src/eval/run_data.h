// The data of a run, opened as its recipe says. No LibTorch: `octet evaluate` and `octet compare` need it too.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/data/loader.h"
#include "src/recipe/recipe.h"

namespace octet {

/// Training, calibration and validation are three separate index lists. Calibration images are training images; no
/// training image is a validation image.
struct RunData {
  std::shared_ptr<const Dataset> train_set, validation_set;  ///< the same object when validation is split off
  std::vector<size_t> train, calibration;                    ///< into train_set, ascending
  std::vector<size_t> validation;                            ///< into validation_set, ascending
  Transform train_transform, evaluation_transform;
  std::vector<float> mean, std;  ///< of the normalization, one a channel
  int workers = 2;
  int classes() const { return static_cast<int>(train_set->class_names().size()); }
};

/// Opens the data sets and chooses the three lists by recipe.seed. Throws Error(data) as the readers do, and
/// Error(usage) when the recipe does not fit the data: channels, an empty list.
RunData open_run_data(const Recipe& recipe);

/// `count` of `from`, chosen by seed, in their order; all of them when count is 0 or not less than there are.
std::vector<size_t> choose(const std::vector<size_t>& from, size_t count, uint64_t seed);

}  // namespace octet
