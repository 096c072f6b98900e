// Which images train, calibrate and validate: three lists, chosen by seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace octet {

struct SplitOptions {
  size_t train_images = 0, validation_images = 0;  ///< of the two data sets
  double validation_fraction = 0;  ///< > 0: this share of the training set validates; the validation set is not used
  size_t limit_train = 0, limit_validation = 0;  ///< 0: all
  size_t calibration_images = 0;                 ///< of the training images; all when there are fewer
  uint64_t seed = 0;
};

struct Split {
  std::vector<size_t> train, calibration, validation;  ///< ascending; indices into their data sets
  bool validation_from_train = false;                  ///< validation indexes the training set
};

/// Throws Error(data) when training or validation would be empty.
Split split_indices(const SplitOptions& options);

}  // namespace octet
