#include "src/eval/run_data.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "src/common/error.h"
#include "src/common/progress.h"
#include "src/data/split.h"

namespace octet {
namespace {

std::shared_ptr<const Dataset> open_split(const Recipe& recipe, const std::string& split) {
  const DataRecipe& from = recipe.data;
  std::shared_ptr<const Dataset> dataset = open_dataset({.format = from.format,
                                                         .path = from.path,
                                                         .split = split,
                                                         .classes = from.classes,
                                                         .channels = from.channels,
                                                         .image_size = from.image_size,
                                                         .synthetic_size = from.synthetic_size,
                                                         .synthetic_classes = from.synthetic_classes,
                                                         .seed = recipe.seed});
  if (dataset->channels() != from.channels) {
    throw usage_error(fmt::format("data.channels: {}, but the images of {} have {}", from.channels, from.format,
                                  dataset->channels()));
  }
  return dataset;
}

Transform evaluation_transform(const DataRecipe& recipe) {
  Transform transform;
  transform.channels = recipe.channels;
  transform.height = transform.width = recipe.image_size;
  transform.resize = recipe.resize;
  return transform;
}

Transform train_transform(const DataRecipe& recipe) {
  Transform transform = evaluation_transform(recipe);
  transform.random_resized_crop = recipe.random_resized_crop;
  transform.crop_area_min = recipe.crop_area_min;
  transform.pad = recipe.pad;
  transform.flip = recipe.flip;
  transform.cutout = recipe.cutout;
  for (const double mean : recipe.mean) {
    transform.fill.push_back(static_cast<uint8_t>(std::clamp(std::lround(mean * 255), 0L, 255L)));
  }
  return transform;
}

}  // namespace

EvaluationSet RunData::evaluation_set(long images) const {
  EvaluationSet set{
      .dataset = validation_set.get(), .indices = validation, .transform = evaluation_transform, .workers = workers};
  if (images > 0) set.indices.resize(std::min(set.indices.size(), static_cast<size_t>(images)));
  return set;
}

RunData open_run_data(const Recipe& recipe) {
  RunData data;
  const DataRecipe& from = recipe.data;
  data.train_set = open_split(recipe, from.train);
  if (from.validation_fraction == 0) {
    data.validation_set = open_split(recipe, from.validation);
    check_same_classes(*data.train_set, *data.validation_set);
    const auto plain = [](const std::string& split) { return (std::filesystem::path(split) / "").lexically_normal(); };
    data.validates_on_training_images = plain(from.train) == plain(from.validation);
    if (data.validates_on_training_images) say(std::string("note: ") + kSameImages);
  }
  const size_t validation_images = data.validation_set == nullptr ? 0 : data.validation_set->size();
  Split split = split_indices({.train_images = data.train_set->size(),
                               .validation_images = validation_images,
                               .validation_fraction = from.validation_fraction,
                               .limit_train = static_cast<size_t>(from.limit_train),
                               .limit_validation = static_cast<size_t>(from.limit_validation),
                               .calibration_images = static_cast<size_t>(recipe.calibrate.images),
                               .seed = recipe.seed});
  if (split.validation_from_train) data.validation_set = data.train_set;
  data.train = std::move(split.train);
  data.calibration = std::move(split.calibration);
  data.validation = std::move(split.validation);
  data.train_transform = train_transform(from);
  data.evaluation_transform = evaluation_transform(from);
  data.mean.assign(from.mean.begin(), from.mean.end());
  data.std.assign(from.std.begin(), from.std.end());
  data.workers = from.workers;
  return data;
}

}  // namespace octet
