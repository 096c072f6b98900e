// Which images train, calibrate, validate and test: four lists, chosen by seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace octet {

struct SplitOptions {
  size_t train_images = 0, test_images = 0;  ///< of the data sets
  size_t validation_images = 0;              ///< of a data set of its own; 0: validation is cut from training
  double validation_fraction = 0;            ///< share of the training set that is cut
  size_t limit_train = 0, limit_validation = 0, limit_test = 0;  ///< 0: all
  size_t calibration_images = 0;                                 ///< of the training images; all when there are fewer
  uint64_t seed = 0;
};

struct Split {
  std::vector<size_t> train, calibration, validation, test;  ///< ascending; indices into their data sets
};

/// Throws Error(data) when training, validation or test would be empty.
Split split_indices(const SplitOptions& options);

}  // namespace octet
