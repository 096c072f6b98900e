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
#include "src/data/box_annotations.h"
#include "src/data/image_files.h"
#include "src/net/onnx/onnx.h"
#include "src/recipe/run.h"
#include "src/recipe/schema.h"

namespace octet {

// The data.yaml beside YOLO's labels: names of classes, and folders of images (docs.ultralytics.com/datasets/detect).
namespace {

namespace fs = std::filesystem;

const YamlNode* find(const YamlNode& map, const std::string& key) {
  for (size_t i = 0; i < map.keys.size(); ++i)
    if (map.keys[i].text == key) return &map.items[i];
  return nullptr;
}

/// Returns the text of a key, "" if it is absent or empty.
std::string text_of(const YamlNode& root, const std::string& key, const std::string& file) {
  const YamlNode* node = find(root, key);
  if (node == nullptr || node->kind == YamlNode::Kind::null) return "";
  if (node->kind == YamlNode::Kind::scalar) return node->text;
  throw data_error(fmt::format("{}: {} is not one folder", place(file, *node), key));
}

/// Returns names of classes, which are a list or a map of their numbers.
std::vector<std::string> names_of(const YamlNode& root, const std::string& file) {
  const YamlNode* node = find(root, "names");
  std::vector<std::string> names;
  for (size_t i = 0; node != nullptr && i < node->items.size(); ++i) {
    if (node->kind == YamlNode::Kind::map && node->keys[i].text != std::to_string(i))
      throw data_error(
          fmt::format("{}: '{}' in the place of class {}", place(file, node->keys[i]), node->keys[i].text, i));
    if (node->items[i].kind != YamlNode::Kind::scalar)
      throw data_error(
          fmt::format("{}: class {} has no name; a name is one text, null in quotes", place(file, node->items[i]), i));
    names.push_back(node->items[i].text);
  }
  if (names.empty()) throw data_error(file + ": no names of classes");
  if (const std::string fault = names_fault(names); !fault.empty())
    throw data_error(fmt::format("{}: names: {}", file, fault));
  return names;
}

/// Returns the folder that a value means: below the tree's root; Roboflow's files begin values with a ".." too many.
std::string folder_of(const FileTree& tree, const std::string& value) {
  const bool above = value.starts_with("../") && !tree.is_folder(value) && !tree.is_file(value);
  return above ? value.substr(3) : value;
}

}  // namespace

void take_data_yaml(DatasetSpec& spec) {
  const FileTree tree(spec.path);
  const fs::path given = spec.path;
  const bool within = tree.in_archive() || fs::is_directory(given);
  const fs::path file = within ? fs::path(tree.describe("data.yaml")) : given;
  if (within ? !tree.is_file("data.yaml") : !fs::is_regular_file(file)) return;
  const std::string name = file.string();
  const std::string text = within ? tree.file("data.yaml").read() : read_file(name);
  const YamlNode root = parse_yaml(without_byte_order_mark(text), name);
  if (const YamlNode* points = find(root, "kpt_shape"))
    throw data_error(place(name, *points) + ": kpt_shape: the labels hold key points, which octet does not read");
  if (spec.classes.empty() && spec.class_names.empty()) spec.class_names = names_of(root, name);
  const fs::path folder = file.parent_path(), path = folder / text_of(root, "path", name);
  if (!tree.in_archive()) spec.path = (fs::is_directory(path) ? path : folder).string();
  if (const std::string value = text_of(root, spec.split, name); !value.empty())
    spec.split = folder_of(FileTree(spec.path), value);
}

namespace {

constexpr const char* kTest = "data.test";

/// Returns the cure if the test images of an image folder are missing and its recipe does not set data.test. Every
/// other format has a test part.
std::string cure(const DataRecipe& from, const std::string& key) {
  if (from.format != "image_folder" || key != kTest || from.test != DataRecipe().test) return "";
  return "; set data.test to the folder of the test images, or data.test_path. Pictures without such a part can be "
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
