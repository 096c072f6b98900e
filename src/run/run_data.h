// The data of a run, opened as its recipe says. No LibTorch: `octet evaluate` and `octet compare` need it too.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/eval/evaluate.h"
#include "src/recipe/recipe.h"

namespace octet {

/// Four lists of images. Who reads what:
///   train        the training loops
///   calibration  ranges of activations; some of the training images
///   validation   every choice: the figures after each epoch, the best of `octet calibrate --all`. No training image
///   test         the final figures, once, when nothing is chosen any more: the report's rows, `octet evaluate`,
///                `octet compare`. Neither a training nor a validation image, unless tests_on_training_images
struct RunData {
  std::shared_ptr<const Dataset> train_set;
  std::shared_ptr<const Dataset> validation_set;  ///< train_set itself when validation is cut from it
  std::shared_ptr<const Dataset> test_set;
  std::vector<size_t> train, calibration;  ///< into train_set, ascending
  std::vector<size_t> validation;          ///< into validation_set, ascending
  std::vector<size_t> test;                ///< into test_set, ascending
  Transform train_transform, evaluation_transform;
  std::vector<float> mean, std;  ///< of the normalization, one a channel
  int workers = 2;
  /// data.train and data.test name the same images, as with a sample that has no test part: allowed for PTQ, whose
  /// calibration looks at a few of them, but accuracies are not those of unseen images.
  bool tests_on_training_images = false;
  std::vector<std::string> notes;          ///< about files that are not read, and such; said already, for the report
  std::shared_ptr<const Sharing> sharing;  ///< of the validation and test images; null: this process has them alone

  int classes() const { return static_cast<int>(train_set->class_names().size()); }
  Task task() const;
  EvaluationSet validation_images() const;
  EvaluationSet test_images(long images = 0) const;  ///< the first `images` of them; 0: all
};

/// Said to the user and in the report when tests_on_training_images.
inline constexpr const char* kSameImages =
    "data.train and data.test are the same images: calibration and choices saw what the figures are of";

/// Opens the data sets and chooses the lists by recipe.seed. Throws Error(data) as the readers do, naming the key, and
/// Error(usage) when data.channels does not fit the images.
RunData open_run_data(const Recipe& recipe);

}  // namespace octet
