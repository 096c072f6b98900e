// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "src/base/error.h"
#include "src/base/files.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/data/box_folder.h"
#include "src/net/onnx/onnx.h"
#include "src/recipe/run.h"
#include "src/recipe/schema.h"

namespace octet {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTest = "data.test";

/// Returns the cure if the test images of an image folder are missing and its recipe does not set data.test. Every
/// other format has a test part.
std::string cure(const DataRecipe& from, const std::string& key) {
  if (from.format != "image_folder" || key != kTest || from.test != DataRecipe().test) return "";
  return "; set data.test to the folder of the test images, or data.test_path. Images without such a part can be "
         "quantized after training only: set it to what data.train is";
}

/// Returns the split that the recipe's `key` names. `classes` are those of the training set, for the other splits.
DatasetSpec spec_of(const Recipe& recipe, const std::string& key, const std::string& split,
                    const std::vector<std::string>& classes = {}) {
  const DataRecipe& from = recipe.data;
  const bool elsewhere = key == kTest && !from.test_path.empty();
  DatasetSpec spec = {.format = from.format,
                      .path = elsewhere ? from.test_path : from.path,
                      .split = split,
                      .classes = from.classes,
                      .class_names = classes.empty() ? from.class_names : classes,
                      .channels = from.channels,
                      .orientation = from.orientation,
                      .image_size = from.image_size,
                      .synthetic_size = from.synthetic_size,
                      .synthetic_classes = from.synthetic_classes,
                      .labels = from.labels,
                      .ignore_index = from.ignore_index,
                      .leave_out_faults = from.leave_out_faults,
                      .seed = recipe.seed};
  if (from.format == "yolo") take_data_yaml(spec);
  return spec;
}

/// Opens that split.
std::shared_ptr<const Dataset> open_split(const Recipe& recipe, const std::string& key, const std::string& split,
                                          const std::vector<std::string>& classes = {}) try {
  const DataRecipe& from = recipe.data;
  std::shared_ptr<const Dataset> dataset = open_dataset(spec_of(recipe, key, split, classes));
  if (dataset->channels() != from.channels) {
    throw usage_error(fmt::format("data.channels: {}, but the images of {} have {}", from.channels, from.format,
                                  dataset->channels()));
  }
  return dataset;
} catch (const Error& error) {
  if (error.code() != ExitCode::data) throw;
  throw data_error(fmt::format("{}: {}{}", key, error.what(), cure(recipe.data, key)));
}

/// Returns whether the test images are the training images by the folders of YOLO's images, which a data.yaml may name.
/// Throws Error(usage) where the recipe's checks refuse splits of these names.
bool tests_on_training_folder(const Recipe& recipe) {
  if (recipe.data.format != "yolo") return false;
  Recipe found = recipe;
  DataRecipe& data = found.data;
  const auto take_folder = [&](const char* key, std::string& split) {
    const DatasetSpec spec = spec_of(recipe, key, split);
    const FileTree tree(spec.path);
    const std::string folder = tree.describe(yolo_folders(tree, spec).first);
    split = fs::weakly_canonical(folder).string();
  };
  take_folder("data.train", data.train);
  if (!data.validation.empty()) take_folder("data.validation", data.validation);
  take_folder(kTest, data.test);
  data.path = data.test_path = "";  // the folders are whole paths
  check_different_images({found, {}, recipe.data.path, {}});
  return tests_on_training_images(data);
}

EvaluationSet all_of(const RunData& data, const char* name, const std::shared_ptr<const Dataset>& dataset,
                     const std::vector<size_t>& indices) {
  return {.name = name,
          .dataset = dataset.get(),
          .indices = indices,
          .transform = data.evaluation_transform,
          .workers = data.workers,
          .threads = data.threads,
          .detector = data.detector,
          .sharing = data.sharing};
}

Transform evaluation_transform(const DataRecipe& recipe) {
  Transform transform;
  transform.channels = recipe.channels;
  transform.height = recipe.image_size;
  transform.width = recipe.width();
  transform.resize = recipe.resize;
  transform.fit = recipe.fit;
  transform.order = recipe.channel_order;
  return transform;
}

Transform train_transform(const DataRecipe& recipe) {
  Transform transform = evaluation_transform(recipe);
  transform.random_resized_crop = recipe.random_resized_crop;
  transform.crop_area_min = recipe.crop_area_min;
  transform.pad = recipe.pad;
  transform.flip = recipe.flip;
  transform.cutout = recipe.cutout;
  if (const auto& by = recipe.color_jitter; !by.empty()) transform.jitter = {by[0], by[1], by[2], by[3]};
  transform.rand_augment = recipe.rand_augment;
  transform.rand_augment_magnitude = recipe.rand_augment_magnitude;
  transform.random_erasing = recipe.random_erasing;
  transform.mixup_alpha = recipe.mixup_alpha;
  transform.scale = recipe.scale;
  transform.translate = recipe.translate;
  transform.degrees = recipe.degrees;
  transform.shear = recipe.shear;
  transform.hsv = recipe.hsv;
  transform.mosaic = recipe.mosaic;
  transform.mixup = recipe.mixup;
  transform.multi_scale = recipe.multi_scale;
  for (const double mean : recipe.mean) {
    transform.fill.push_back(static_cast<uint8_t>(std::clamp(std::lround(mean * 255), 0L, 255L)));
  }
  if (transform.order == ChannelOrder::bgr) std::reverse(transform.fill.begin(), transform.fill.end());  // cut as RGB
  return transform;
}

}  // namespace

Task RunData::task() const { return task_of(*train_set, evaluation_transform, detector); }

EvaluationSet RunData::validation_images() const { return all_of(*this, "validation", validation_set, validation); }

EvaluationSet RunData::test_images(long images) const {
  EvaluationSet set = all_of(*this, "test", test_set, test);
  if (images > 0) set.indices.resize(std::min(set.indices.size(), static_cast<size_t>(images)));
  return set;
}

RunData open_run_data(const Recipe& recipe) {
  RunData data;
  const DataRecipe& from = recipe.data;
  data.train_set = open_split(recipe, "data.train", from.train);
  const std::vector<std::string>& classes = data.train_set->class_names();
  data.tests_on_training_images = tests_on_training_images(from);
  data.test_set = data.tests_on_training_images ? data.train_set : open_split(recipe, kTest, from.test, classes);
  const bool split_off = from.validation.empty();
  data.validation_set = split_off ? data.train_set : open_split(recipe, "data.validation", from.validation, classes);
  if (tests_on_training_folder(recipe)) {
    data.tests_on_training_images = true;
    data.test_set = data.train_set;
  }
  if (data.tests_on_training_images) say(std::string("note: ") + kSameImages);
  Split split = split_indices({.train_images = data.train_set->size(),
                               .test_images = data.test_set->size(),
                               .validation_images = split_off ? 0 : data.validation_set->size(),
                               .validation_fraction = from.validation_fraction,
                               .limit_train = static_cast<size_t>(from.limit_train),
                               .limit_validation = static_cast<size_t>(from.limit_validation),
                               .limit_test = static_cast<size_t>(from.limit_test),
                               .calibration_images = static_cast<size_t>(recipe.calibrate.images),
                               .seed = recipe.seed});
  data.train = std::move(split.train);
  data.calibration = std::move(split.calibration);
  data.validation = std::move(split.validation);
  data.test = std::move(split.test);
  data.train_transform = train_transform(from);
  data.evaluation_transform = evaluation_transform(from);
  // If every image has the network's size, nothing is cropped and the checkpoint need not say how.
  const bool cut = from.resize > 0 || data.train_set->common_size() != ImageSize{from.image_size, from.width()};
  data.train_transform.even_margin = data.evaluation_transform.even_margin = cut;
  data.mean.assign(from.mean.begin(), from.mean.end());
  data.std.assign(from.std.begin(), from.std.end());
  data.workers = from.workers;
  data.decode = from.decode;
  data.threads = recipe.threads;
  data.mosaic_off = from.mosaic_off;
  const auto add_notes = [&](const char* key, const std::shared_ptr<const Dataset>& dataset) {
    for (const std::string& note : dataset->notes()) data.notes.push_back(fmt::format("{}: {}", key, note));
  };
  add_notes("data.train", data.train_set);
  if (data.validation_set != data.train_set) add_notes("data.validation", data.validation_set);
  if (data.test_set != data.train_set) add_notes(kTest, data.test_set);
  for (const std::string& note : data.notes) say("note: " + note);
  return data;
}

std::string kind_of_network_file(const std::string& path) {
  std::array<std::byte, 16> first{};
  std::error_code error;
  const auto size = static_cast<size_t>(fs::file_size(path, error));
  if (error || size < first.size()) return "";
  std::ifstream in(path, std::ios::binary);
  if (!in.read(reinterpret_cast<char*>(first.data()), static_cast<std::streamsize>(first.size()))) return "";
  const std::string file = shell_word(path);
  if (is_safetensors(first.data(), size))
    return fmt::format(
        "a safetensors file; a recipe takes float weights by --set model.weights={}, octet run and inspect take an "
        "int8 checkpoint",
        file);
  if (is_pytorch(first.data(), first.size()))
    return fmt::format("weights of PyTorch; a recipe takes them by --set model.weights={}", file);
  return is_onnx(first.data(), first.size()) ? describe_onnx(path) : "";
}

Recipe read_given_recipe(const std::string& path, const std::vector<std::string>& overrides) {
  if (const std::string kind = kind_of_network_file(path); !kind.empty())
    throw usage_error(fmt::format("{}: expected a recipe, found {}", path, kind));
  return read_recipe(path, overrides);
}

}  // namespace octet
