#include "src/data/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/common/error.h"
#include "src/common/random.h"

namespace octet {
namespace {

/// One stream of random numbers for each choice, so that a limit on one list does not move another.
enum Stream : uint64_t { kFraction = 1, kTrain, kValidation, kCalibration, kTest };

/// `limit` of `indices` (0: all) by seed, ascending.
std::vector<size_t> choose(std::vector<size_t> indices, size_t limit, uint64_t seed, Stream stream) {
  if (limit != 0 && limit < indices.size()) {
    Random({seed, stream}).shuffle(indices);
    indices.resize(limit);
  }
  std::sort(indices.begin(), indices.end());
  return indices;
}

}  // namespace

Split split_indices(const SplitOptions& options) {
  Split split;
  std::vector<size_t> train = shuffled_indices(options.train_images, {options.seed, kFraction});
  std::vector<size_t> validation;
  if (options.validation_images == 0) {
    const double share = options.validation_fraction * static_cast<double>(train.size());
    const auto kept = train.end() - static_cast<std::ptrdiff_t>(std::llround(share));
    validation.assign(kept, train.end());
    train.erase(kept, train.end());
  } else {
    validation = shuffled_indices(options.validation_images, {options.seed, kFraction});
  }
  if (train.empty()) throw data_error("the training set has no image");
  if (validation.empty()) {
    throw data_error(fmt::format("the validation set has no image: data.validation_fraction {} of {} training images",
                                 options.validation_fraction, options.train_images));
  }
  if (options.test_images == 0) throw data_error("the test set has no image");
  split.train = choose(std::move(train), options.limit_train, options.seed, kTrain);
  split.validation = choose(std::move(validation), options.limit_validation, options.seed, kValidation);
  std::vector<size_t> test(options.test_images);
  std::iota(test.begin(), test.end(), size_t{0});
  split.test = choose(std::move(test), options.limit_test, options.seed, kTest);
  if (options.calibration_images > 0) {
    split.calibration = choose(split.train, options.calibration_images, options.seed, kCalibration);
  }
  return split;
}

}  // namespace octet
