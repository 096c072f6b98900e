// SPDX-License-Identifier: Apache-2.0
#include "src/recipe/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "src/base/error.h"

namespace octet {
namespace {

/// The defaults of a data format. Means and deviations are those of the training sets, of pixels in 0..1.
struct Format {
  std::string_view name, path;
  int channels, image_size;
  bool fixed;  ///< all images have this shape
  std::vector<double> mean, std;
};

/// Returns whether two names mean the same folder, as "val" and "val/" do.
bool same_split(const std::string& a, const std::string& b) {
  const auto plain = [](const std::string& split) { return (std::filesystem::path(split) / "").lexically_normal(); };
  return plain(a) == plain(b);
}

/// Returns whether the images of that split of data.path are the test images.
bool is_tested(const DataRecipe& data, const std::string& split) {
  const bool elsewhere = !data.test_path.empty() && !same_split(data.test_path, data.path);
  return !elsewhere && same_split(split, data.test);
}

const Format& find_format(std::string_view name) {
  static const std::vector<Format> kFormats = {
      {"fashion_mnist", "/usr/share/datasets/fashion-mnist", 1, 28, true, {0.2860}, {0.3530}},
      {"mnist", "", 1, 28, true, {0.1307}, {0.3081}},
      {"cifar10", "", 3, 32, true, {0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}},
      {"cifar100", "", 3, 32, true, {0.5071, 0.4865, 0.4409}, {0.2673, 0.2564, 0.2762}},
      {"image_folder", "", 3, 224, false, {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}},
      {"coco", "", 3, 416, false, {0, 0, 0}, {1, 1, 1}},
      {"voc", "", 3, 416, false, {0, 0, 0}, {1, 1, 1}},
      {"yolo", "", 3, 416, false, {0, 0, 0}, {1, 1, 1}},
      {"synthetic", "", 3, 32, false, {0.5, 0.5, 0.5}, {0.25, 0.25, 0.25}},
  };
  const auto found = std::find_if(kFormats.begin(), kFormats.end(), [&](const Format& f) { return f.name == name; });
  if (found == kFormats.end()) throw usage_error("data.format: unknown value '" + std::string(name) + "'");
  return *found;
}

/// Whether splits have names of the user's choice.
bool is_folder(const DataRecipe& data) { return data.format == "image_folder" || has_boxes(data.format); }

struct DataChecks : Checks {
  void run() const {
    const DataRecipe& d = recipe.data;
    const Format& format = find_format(d.format);
    const bool folder = is_folder(d), synthetic = d.format == "synthetic";
    require(d.channels == 1 || d.channels == 3, "data.channels", fmt::format("{}; allowed: 1, 3", d.channels));
    require(!format.fixed || d.channels == format.channels, "data.channels",
            fmt::format("is {}, but images of {} have {}", d.channels, d.format, format.channels));
    require(!d.path.empty() || synthetic, "data.path", "needed for data.format " + d.format);
    require(!synthetic || d.test_path.empty(), "data.test_path", "synthetic images lie nowhere; leave it out");
    require(folder || d.classes.empty(), "data.classes", "only for data.format image_folder, coco, voc and yolo");
    require(d.class_names.empty() || (folder && d.classes.empty()), "data.class_names",
            "only for data.format image_folder, coco, voc and yolo, without data.classes");
    const std::string fault = names_fault(d.class_names);
    require(fault.empty(), "data.class_names", fault + "; give each class a name of its own");
    check_splits(folder);
    check_labels(synthetic);
    check_fit();
    const auto per_channel = [&](const std::vector<double>& values, const char* key) {
      require(values.size() == static_cast<size_t>(d.channels), key,
              fmt::format("has {} values, but data.channels is {}", values.size(), d.channels));
    };
    per_channel(d.mean, "data.mean");
    per_channel(d.std, "data.std");
    const int shorter = std::min(d.image_size, d.width()), longer = std::max(d.image_size, d.width());
    require(d.image_size >= 8, "data.image_size", fmt::format("{}; allowed: 8 .. 2048", d.image_size));
    require(d.width() >= 8, "data.image_width", fmt::format("{}; allowed: 0, 8 .. 2048", d.image_width));
    require(folder || d.width() == d.image_size, "data.image_width",
            fmt::format("{}, but data.format {} has square images; leave it out", d.image_width, d.format));
    require(d.resize == 0 || d.resize >= longer, "data.resize",
            fmt::format("{} is below data.image_size {}", d.resize, longer));
    require(!format.fixed || d.resize > 0 || d.image_size <= format.image_size, "data.image_size",
            fmt::format("{} is larger than the {} pixels of {}; set data.resize", d.image_size, format.image_size,
                        d.format));
    require(d.pad < shorter, "data.pad", fmt::format("{} is not below data.image_size {}", d.pad, shorter));
    require(d.cutout < shorter, "data.cutout", fmt::format("{} is not below data.image_size {}", d.cutout, shorter));
    require(!(d.random_resized_crop && d.pad > 0), "data.pad", "cannot be joined with data.random_resized_crop");
    require(!synthetic || d.synthetic_size >= d.synthetic_classes, "data.synthetic_size",
            fmt::format("{} is below data.synthetic_classes {}", d.synthetic_size, d.synthetic_classes));
  }

  /// Checks how images get the input's size, and what only one of the ways can do.
  void check_fit() const {
    const DataRecipe& d = recipe.data;
    const std::string_view fit = name_in(kFits, d.fit);
    require(d.fit != Fit::tensor, "data.fit",
            "tensor is no image; allowed: crop, stretch, letterbox, letterbox_corner");
    require(d.channel_order == ChannelOrder::rgb || d.channels == 3, "data.channel_order",
            fmt::format("bgr, but data.channels is {}", d.channels));
    const bool crops = d.fit == Fit::crop;
    require(!crops || d.labels != Labels::boxes, "data.fit", "crop would cut boxes off; set letterbox_corner");
    const auto only_crops = [&](const char* key, bool set) {
      require(crops || !set, key, fmt::format("is for data.fit: crop, which is {}; leave it out", fit));
    };
    only_crops("data.resize", d.resize > 0);
    only_crops("data.pad", d.pad > 0);
    only_crops("data.random_resized_crop", d.random_resized_crop && d.labels == Labels::image);
    only_crops("data.cutout", d.cutout > 0);
    only_crops("data.color_jitter", !d.color_jitter.empty());
    only_crops("data.rand_augment", d.rand_augment > 0);
    only_crops("data.random_erasing", d.random_erasing > 0);
    only_crops("data.mixup_alpha", d.mixup_alpha > 0);
    check_decode();
    check_colours();
    const auto only_placed = [&](const char* key, bool set) {
      require(!crops || !set, key, "is for data.fit: letterbox and the like, which is crop; leave it out");
    };
    only_placed("data.scale", d.scale > 0);
    only_placed("data.translate", d.translate > 0);
    only_placed("data.degrees", d.degrees > 0);
    only_placed("data.shear", d.shear > 0);
    only_placed("data.hsv", d.hsv);
    only_placed("data.mosaic", d.mosaic > 0);
    only_placed("data.mixup", d.mixup > 0);
    only_placed("data.multi_scale", d.multi_scale > 0);
    require(d.mosaic == 0 || d.labels != Labels::image, "data.mosaic",
            "a mosaic of images has no class (data.labels: image); leave it out");
    require(d.mosaic == 0 || !d.random_resized_crop, "data.random_resized_crop",
            "takes no parts of the images that a mosaic (data.mosaic) joins; leave one of the two out");
    require(d.multi_scale == 0 || d.labels != Labels::image, "data.multi_scale",
            "a network that answers for whole images (data.labels: image) has one size; leave it out");
    require(d.mixup == 0 || d.labels == Labels::boxes, "data.mixup",
            fmt::format("the mean of two images has the boxes of both, but data.labels is {}; leave it out",
                        name_in(kLabels, d.labels)));
  }

  void check_decode() const {
    const DataRecipe& d = recipe.data;
    if (d.decode == Decoding::cpu) return;
    require(d.format == "image_folder" || has_boxes(d.format), "data.decode",
            fmt::format("gpu decodes files, of image_folder, coco, voc and yolo, but data.format is {}; leave it out",
                        d.format));
    require(d.color_jitter.empty() && d.rand_augment == 0 && d.mixup_alpha == 0, "data.decode",
            "gpu, but data.color_jitter, rand_augment and mixup_alpha change pixels on the CPU; leave it out");
  }

  void check_colours() const {
    const DataRecipe& d = recipe.data;
    require(d.color_jitter.empty() || d.color_jitter.size() == 4, "data.color_jitter",
            fmt::format("{} values; brightness, contrast, saturation and hue are four", d.color_jitter.size()));
    require(d.color_jitter.empty() || d.color_jitter[3] <= 0.5, "data.color_jitter",
            "a hue of more than 0.5, half of the circle");
    const auto of_images = [&](const char* key, bool set, const char* why) {
      require(!set || d.labels == Labels::image, key,
              fmt::format("{}, but data.labels is {}; leave it out", why, name_in(kLabels, d.labels)));
    };
    of_images("data.rand_augment", d.rand_augment > 0, "moves images without their labels");
    of_images("data.mixup_alpha", d.mixup_alpha > 0, "mixes the classes of two images");
  }

  /// Checks that the data set has the labels that are asked for.
  void check_labels(bool synthetic) const {
    const DataRecipe& d = recipe.data;
    require((d.labels == Labels::boxes) == has_boxes(d.format), "data.labels",
            fmt::format("{}, but data.format is {}: boxes come with coco, voc and yolo, and with them alone",
                        name_in(kLabels, d.labels), d.format));
    if (d.labels != Labels::pixels) return;
    require(synthetic || d.format == "image_folder", "data.labels",
            fmt::format("pixels, but {} has a class for each image; masks come with data.format image_folder (beside "
                        "the images) and synthetic",
                        d.format));
    require(synthetic || !d.classes.empty() || !d.class_names.empty(), "data.class_names",
            "needed with data.labels: pixels: the classes of the masks' numbers; or data.classes, a file");
    require(!synthetic || d.synthetic_classes == 2 || d.synthetic_classes == 4, "data.synthetic_classes",
            fmt::format("{}; with data.labels: pixels 2 (background, shape) or 4 (background, disc, box, triangle)",
                        d.synthetic_classes));
  }

  /// Checks that the images which train, which choose and which give the final figures are different ones.
  void check_splits(bool folder) const {
    const DataRecipe& d = recipe.data;
    const bool cut = d.validation.empty();
    // In an older octet's recipe data.validation had the final figures: read as a new one, it would choose on them.
    require(places.count("data.validation") == 0 || places.count("data.test") != 0, "data.validation",
            "given without data.test, whose images the final figures are of; in a recipe of an older octet (also in a "
            "run's recipe.yaml) rename validation to test, and a validation_fraction of 0 to 0.02");
    const auto require_split = [&](const char* key, const std::string& split) {
      require(folder || split == "train" || split == "test", key,
              fmt::format("'{}'; allowed for {}: train, test", split, d.format));
    };
    require_split("data.train", d.train);
    require_split("data.test", d.test);
    if (!cut) require_split("data.validation", d.validation);
    check_different_images(*this);
    require(cut || d.validation_fraction == 0, "data.validation_fraction",
            fmt::format("{} of the training split, but data.validation names a split; leave one of them out",
                        d.validation_fraction));
    require(!cut || d.validation_fraction > 0, "data.validation_fraction",
            "0 leaves no image to choose on; set a share above 0, or name a split in data.validation");
  }
};

}  // namespace

void check_different_images(const Checks& checks) {
  const DataRecipe& d = checks.recipe.data;
  checks.require(
      d.validation.empty() || !is_tested(d, d.validation), "data.validation",
      fmt::format("'{}' is data.test too, and nothing may be chosen on test images; leave data.validation out (it "
                  "is cut from the training split then), or name other images",
                  d.validation));
  checks.require(
      d.validation.empty() || !same_split(d.validation, d.train), "data.validation",
      fmt::format("'{}' is data.train too; leave data.validation out: it is cut from the training split then",
                  d.validation));
  const bool trains = checks.recipe.train.epochs > 0 || checks.recipe.qat.epochs > 0;
  checks.require(
      !trains || !tests_on_training_images(d), "data.test",
      fmt::format("'{}' is data.train too: figures of images that were trained on say nothing; name other images "
                  "(only post-training quantization, with train.epochs and qat.epochs 0, takes one sample for both)",
                  d.test));
}

std::string names_fault(const std::vector<std::string>& names) {
  std::map<std::string, size_t> seen;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) return fmt::format("class {} has no name", i);
    const auto [first, is_new] = seen.emplace(names[i], i);
    if (!is_new) return fmt::format("classes {} and {} are both called '{}'", first->second, i, names[i]);
  }
  return "";
}

bool tests_on_training_images(const DataRecipe& data) { return is_tested(data, data.train); }

void resolve_defaults(Recipe& recipe, const Places& places) {
  DataRecipe& data = recipe.data;
  if (!data.validation.empty() && places.count("data.validation_fraction") == 0) data.validation_fraction = 0;
  const Format& format = find_format(data.format);
  if (data.path.empty()) data.path = format.path;
  if (is_folder(data) && places.count("data.orientation") == 0) data.orientation = Orientation::exif;
  if (has_boxes(data.format) && places.count("data.labels") == 0) data.labels = Labels::boxes;
  if (has_boxes(data.format) && places.count("data.fit") == 0) data.fit = Fit::letterbox_corner;
  if (data.channels == 0) data.channels = format.channels;
  data.usual_image_size = {data.image_size == 0};
  if (data.image_size == 0) data.image_size = format.image_size;
  const auto take_first = [&](std::vector<double>& values, const std::vector<double>& usual) {
    if (!values.empty()) return;
    values.assign(usual.begin(), usual.begin() + std::min<size_t>(usual.size(), data.channels));
  };
  take_first(data.mean, format.mean);
  take_first(data.std, format.std);
}

void Checks::require(bool condition, const std::string& key, const std::string& what) const {
  if (condition) return;
  const auto at = places.find(key);
  throw usage_error((at == places.end() ? name : at->second) + ": " + key + ": " + what);
}

void check_consistency(const Recipe& recipe, const Places& places, const std::string& name, const GivenKeys& given) {
  const Checks checks{recipe, places, name, given};
  DataChecks{checks}.run();
  check_training(checks);
  check_unused(checks);
}

}  // namespace octet
