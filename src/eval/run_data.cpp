#include "src/eval/run_data.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <random>

#include "src/common/error.h"

namespace octet {
namespace {

// One stream of random numbers for each choice, so that changing one does not move the others.
enum class Choice : uint64_t { validation_split = 1, limit_train, limit_validation, calibration };

uint64_t stream(uint64_t seed, Choice choice) { return seed * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(choice); }

std::vector<size_t> all_of(const Dataset& dataset) {
  std::vector<size_t> indices(dataset.size());
  std::iota(indices.begin(), indices.end(), size_t{0});
  return indices;
}

void check_channels(const Dataset& dataset, const Recipe& recipe) {
  if (dataset.channels() == recipe.data.channels) return;
  throw usage_error(fmt::format("data.channels: {}, but the images of {} have {}", recipe.data.channels,
                                recipe.data.path.empty() ? recipe.data.format : recipe.data.path, dataset.channels()));
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
  for (const double mean : recipe.mean)
    transform.fill.push_back(static_cast<uint8_t>(std::clamp(std::lround(mean * 255), 0L, 255L)));
  return transform;
}

}  // namespace

std::vector<size_t> choose(const std::vector<size_t>& from, size_t count, uint64_t seed) {
  if (count == 0 || count >= from.size()) return from;
  std::vector<size_t> chosen = from;
  std::mt19937_64 random(seed);  // its sequence is fixed by the C++ standard; std::shuffle's use of it is not
  for (size_t i = 0; i < count; ++i) std::swap(chosen[i], chosen[i + random() % (chosen.size() - i)]);
  chosen.resize(count);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

RunData open_run_data(const Recipe& recipe) {
  RunData data;
  const DataRecipe& from = recipe.data;
  OpenedDatasets opened = open_datasets(from, recipe.seed);
  data.train_set = std::move(opened.train);
  data.train = all_of(*data.train_set);
  check_channels(*data.train_set, recipe);
  if (from.validation_fraction > 0) {
    const auto count = static_cast<size_t>(
        std::max(1L, std::lround(from.validation_fraction * static_cast<double>(data.train.size()))));
    data.validation_set = data.train_set;
    data.validation = choose(data.train, count, stream(recipe.seed, Choice::validation_split));
    std::vector<size_t> rest;
    std::set_difference(data.train.begin(), data.train.end(), data.validation.begin(), data.validation.end(),
                        std::back_inserter(rest));
    data.train = std::move(rest);
  } else {
    data.validation_set = std::move(opened.validation);
    data.validation = all_of(*data.validation_set);
    check_channels(*data.validation_set, recipe);
  }
  data.train = choose(data.train, static_cast<size_t>(from.limit_train), stream(recipe.seed, Choice::limit_train));
  data.validation = choose(data.validation, static_cast<size_t>(from.limit_validation),
                           stream(recipe.seed, Choice::limit_validation));
  data.calibration =
      choose(data.train, static_cast<size_t>(recipe.calibrate.images), stream(recipe.seed, Choice::calibration));
  if (data.train.empty() || data.validation.empty()) {
    throw usage_error(fmt::format("data: {} training and {} validation images; both are needed", data.train.size(),
                                  data.validation.size()));
  }
  data.train_transform = train_transform(from);
  data.evaluation_transform = evaluation_transform(from);
  data.mean.assign(from.mean.begin(), from.mean.end());
  data.std.assign(from.std.begin(), from.std.end());
  data.workers = from.workers;
  return data;
}

}  // namespace octet
