// SPDX-License-Identifier: Apache-2.0
#include "src/data/dataset.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "src/base/error.h"
#include "src/base/random.h"
#include "src/data/box_folder.h"
#include "src/data/image_folder.h"
#include "src/data/mask_folder.h"
#include "src/data/memory_dataset.h"

namespace octet {
namespace {

const std::vector<std::string> kFashion = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                           "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
const std::vector<std::string> kDigits = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};

}  // namespace

Image Dataset::mask(size_t index) const {
  throw usage_error(describe(index) + ": this data set has a class for each image, none for its pixels");
}

const std::vector<BoxLabel>& Dataset::boxes(size_t index) const {
  throw usage_error(describe(index) + ": this data set has no boxes");
}

std::unique_ptr<Dataset> open_dataset(const DatasetSpec& spec) {
  const std::string& format = spec.format;
  if (spec.labels == Labels::pixels && format == "image_folder") return open_mask_folder(spec);
  if (spec.labels == Labels::pixels && format != "synthetic") {
    throw usage_error(fmt::format(
        "data.labels: pixels, but {} has a class for each image; masks come with image_folder and synthetic", format));
  }
  if ((spec.labels == Labels::boxes) != has_boxes(format))
    throw usage_error(
        fmt::format("data.labels: {}, but data.format is {}: boxes come with coco, voc and yolo, and with them alone",
                    name_in(kLabels, spec.labels), format));
  if (has_boxes(format)) return open_box_folder(spec);
  if (format == "image_folder") return open_image_folder(spec);
  if (spec.split != "train" && spec.split != "test") {
    throw usage_error(fmt::format("data: split '{}' of {}; allowed: train, test", spec.split, format));
  }
  if (format == "synthetic") return open_synthetic(spec);
  const auto in_memory = [](MemoryImages images) { return std::make_unique<MemoryDataset>(std::move(images)); };
  if (format == "fashion_mnist") return in_memory(read_idx_folder(spec.path, spec.split, kFashion));
  if (format == "mnist") return in_memory(read_idx_folder(spec.path, spec.split, kDigits));
  if (format == "cifar10") return in_memory(read_cifar10(spec.path, spec.split));
  if (format == "cifar100") return in_memory(read_cifar100(spec.path, spec.split));
  throw usage_error("data.format: unknown value '" + format + "'");
}

namespace {

/// Each choice has its own stream of random numbers, so a limit on one list does not change another.
enum Stream : uint64_t { kFraction = 1, kTrain, kValidation, kCalibration, kTest };

/// Returns `limit` of `indices` (0: all), chosen by seed, in ascending order.
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
