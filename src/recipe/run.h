// SPDX-License-Identifier: Apache-2.0
// What a run is, by its recipe: the images that it reads, and the names of the files that it writes. No LibTorch:
// `octet evaluate` and `octet compare` need it, too.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "src/eval/evaluate.h"
#include "src/recipe/recipe.h"

namespace octet {

/// The names of the files in a run's directory, which trainers/README.md explains. Nothing is opened here.
struct RunDirectory {
  std::string root;  ///< "runs/small_cnn-1", without a slash at the end

  std::string recipe() const { return root + "/recipe.yaml"; }            ///< resolved: every key with its value
  std::string command() const { return root + "/command.txt"; }           ///< a line for each start or resume
  std::string environment() const { return root + "/environment.json"; }  ///< versions, seed, machine
  std::string metrics() const { return root + "/metrics.jsonl"; }         ///< a JSON object for each epoch
  std::string events() const { return root + "/events"; }                 ///< for TensorBoard
  std::string checkpoints() const { return root + "/checkpoints"; }
  std::string float_rate() const { return checkpoints() + "/float.rate"; }  ///< see trainers/run/advice.h
  std::string qat_share() const { return checkpoints() + "/qat.share"; }    ///< likewise
  std::string qat_start() const { return checkpoints() + "/qat.start"; }    ///< see trainers/run/qat_start.h
  // States of the trainings, for --resume:
  std::string float_state() const { return checkpoints() + "/float.state.safetensors"; }
  std::string qat_state() const { return checkpoints() + "/qat.state.safetensors"; }
  std::string float_control_state() const { return checkpoints() + "/float_control.state.safetensors"; }
  std::string float_weights() const { return root + "/float.safetensors"; }  ///< PyTorch names, loadable as weights
  std::string float_control() const { return root + "/float_control.safetensors"; }  ///< with qat.float_control
  std::string quantized() const { return root + "/qat.safetensors"; }                ///< weights and quantizer state
  std::string int8(const std::string& name = "int8.safetensors") const { return root + "/" + name; }
  /// Returns the files that the run's int8 checkpoint must not replace.
  std::array<std::string, 6> other_weights() const {
    return {float_weights(), float_control(), quantized(), float_state(), qat_state(), float_control_state()};
  }
  std::string report_json() const { return root + "/report.json"; }
  std::string report_html() const { return root + "/report.html"; }
  std::string report_svg() const { return root + "/report.svg"; }  ///< the results as one image
};

/// Four lists of images, of which each reader has its own:
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
  std::vector<float> mean, std;  ///< of the normalization, for each channel
  int workers = 2;
  Decoding decode = Decoding::cpu;  ///< of training images
  int threads = 0;                  ///< that judge what networks answer; 0: all usable cores
  int mosaic_off = 0;               ///< the last epochs of a phase have no images of several
  /// data.train and data.test name the same images, as for a sample without a test part. That is allowed for PTQ, whose
  /// calibration sees a few of them, but accuracies are not those of unseen images.
  bool tests_on_training_images = false;
  std::vector<std::string> notes;              ///< for the report, about files that are not read; the user was told
  std::shared_ptr<const Sharing> sharing;      ///< of the validation and test images; null: this process has them alone
  std::shared_ptr<const BoxDecoder> detector;  ///< of the network, which learns or finds boxes; null: it does not

  int classes() const { return static_cast<int>(train_set->class_names().size()); }
  Task task() const;
  EvaluationSet validation_images() const;
  EvaluationSet test_images(long images = 0) const;  ///< the first `images` of them; 0: all
};

/// The note to the user and in the report if tests_on_training_images.
inline constexpr const char* kSameImages =
    "data.train and data.test are the same images: calibration and choices saw what the figures are of";

/// Sets path, split and class_names as a data.yaml says that spec.path is or holds, for format yolo; without such a
/// file nothing. Throws Error(data) for a file without names, and Error(usage) for YAML that is none.
void take_data_yaml(DatasetSpec& spec);

/// Opens the data sets and chooses the lists by recipe.seed. Throws Error(data) as the readers do, naming the key, and
/// Error(usage) when data.channels does not fit the images, and when splits of YOLO's labels share images.
RunData open_run_data(const Recipe& recipe);

/// Reads the header of every image file in the lists of `data`, in data.workers threads: after hours of training it
/// would be too late to find a damaged test image. Throws Error(data) naming the first file that is no image, or that
/// its transform cannot take. Returns what the user should know, a sentence each: how many images carry an orientation
/// and whether they are turned, and 16-bit PNGs that are nearly black. Data sets without image files have no headers.
std::vector<std::string> check_images(const RunData& data);

/// Tells a network's own file from a recipe or a run directory. Returns what an ONNX, safetensors or PyTorch file is
/// and which command or recipe key takes it, for messages: "a float network; octet quantize FILE ...". Returns ""
/// for a folder, a missing file and any file that may be a recipe.
std::string kind_of_network_file(const std::string& path);

/// Reads a recipe as read_recipe() does. Throws Error(usage) with kind_of_network_file() if the file is a network.
Recipe read_given_recipe(const std::string& path, const std::vector<std::string>& overrides);

}  // namespace octet
