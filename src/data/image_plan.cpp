// SPDX-License-Identifier: Apache-2.0
#include "src/data/image_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace octet {
namespace {

/// Returns the filter of an axis of the network's input: `wanted` places of a filter's, from `start` on, which may
/// reach over its ends; mirrored; over inputs that begin at `offset`.
ResizeFilter part_of(const ResizeFilter& whole, int start, int wanted, bool mirrored, int offset) {
  const int outputs = static_cast<int>(whole.outputs());
  ResizeFilter part{whole.taps, {}, {}, {}};
  for (int i = 0; i < wanted; ++i) {
    const int from = start + (mirrored ? wanted - 1 - i : i);
    const bool inside = from >= 0 && from < outputs;
    part.first.push_back(inside ? offset + whole.first[from] : 0);
    part.count.push_back(inside ? whole.count[from] : 0);
    const auto weights = whole.weights.begin() + (inside ? static_cast<std::ptrdiff_t>(from) * whole.taps : 0);
    part.weights.insert(part.weights.end(), weights, weights + whole.taps);
  }
  return part;
}

}  // namespace

ImageFile read_image_file(const Dataset& dataset, size_t index) {
  ImageFile result;
  std::optional<std::string> file = dataset.file(index);
  if (!file) {
    result.image = dataset.read(index);
    result.why_cpu = "no files";
    return result;
  }
  const std::string name = dataset.describe(index);
  const ImageHeader header = decode_header(*file, name);
  const bool turned = dataset.orientation() == Orientation::exif && header.orientation != 1;
  if (!turned && header.why_cpu.empty()) {
    result.file = std::move(*file);
    result.image = {header.height, header.width, dataset.channels(), {}};
  } else {
    result.image = decode_image(*file, dataset.channels(), name, dataset.orientation());
    result.why_cpu = header.why_cpu.empty() ? "turned as their EXIF data says" : header.why_cpu;
  }
  dataset.require_size(index, {result.image.height, result.image.width});
  return result;
}

std::string why_not_planned(const Transform& t) {
  if (t.jitter.any() || t.rand_augment > 0 || t.mixup_alpha > 0)
    return "data.color_jitter, rand_augment and mixup_alpha change pixels on the CPU";
  return "";
}

CropPlan plan_crop(const Dataset& dataset, size_t index, const Transform& t, Random& random) {
  CropPlan plan{read_image_file(dataset, index)};
  const ImageSize size{plan.image.height, plan.image.width};
  const ImageSize resized = t.resize > 0 && !t.random_resized_crop ? resized_size(size, t.resize) : size;
  const Augmentation drawn = draw_augmentation(resized, t, random);
  const Rectangle& part = drawn.part;  // of the image, to be resized; or the crop of the image that was resized
  if (t.random_resized_crop) {
    plan.rows = part_of(triangle_filter(part.height, t.height), 0, t.height, false, part.top);
    plan.columns = part_of(triangle_filter(part.width, t.width), 0, t.width, drawn.flip, part.left);
  } else {
    plan.rows = part_of(triangle_filter(size.height, resized.height), part.top, t.height, false, 0);
    plan.columns = part_of(triangle_filter(size.width, resized.width), part.left, t.width, drawn.flip, 0);
  }
  plan.filled = {shared(drawn.cut, t.input()), drawn.erased};
  return plan;
}

void decode_by_cpu(ImageFile& file, int channels, const std::string& name, const std::string& why) {
  file.image = decode_image(file.file, channels, name);
  file.file.clear();
  file.why_cpu = why;
}

namespace {

kernels::Bounds bounds_of(const Rectangle& r) { return {r.top, r.left, r.top + r.height, r.left + r.width}; }

/// Returns the rectangle with one place more on each side, where `whole` has them.
Rectangle grown(const Rectangle& r, const Rectangle& whole) {
  const int top = std::max(r.top - 1, whole.top), left = std::max(r.left - 1, whole.left);
  const int bottom = std::min(r.top + r.height + 1, whole.top + whole.height);
  const int right = std::min(r.left + r.width + 1, whole.left + whole.width);
  return {top, left, bottom - top, right - left};
}

TilePlan plan_tile(ImageFile file, const Tile& tile, const Shown& shows) {
  const Placed& placed = tile.placed;
  const Rectangle& part = placed.part;
  const bool turned = !placed.turn.none();
  const Rectangle kept = turned ? grown(shows.seen, part) : shows.seen;
  TilePlan plan{std::move(file), tile.index, {}, {}, {}};
  plan.tile = {.top = part.top,
               .left = part.left,
               .kept = bounds_of(kept),
               .seen = bounds_of(shows.seen),
               .reached = bounds_of(shows.reached),
               .colours = placed.colours,
               .back = shows.back.plane(),
               .turned = turned ? 1 : 0};
  const int before = kept.left - part.left, after = part.left + part.width - (kept.left + kept.width);
  plan.rows = part_of(triangle_filter(tile.size.height, part.height), kept.top - part.top, kept.height, false, 0);
  plan.columns =
      part_of(triangle_filter(tile.size.width, part.width), placed.flip ? after : before, kept.width, placed.flip, 0);
  return plan;
}

}  // namespace

PlacedPlan plan_placed(const Dataset& dataset, const std::vector<size_t>& others, size_t index, const Transform& t,
                       bool join, Random& random, Composition& composition) {
  std::vector<ImageFile> files;
  const auto size_of = [&](size_t i) {
    files.push_back(read_image_file(dataset, i));
    return ImageSize{files.back().image.height, files.back().image.width};
  };
  composition = compose(index, t, join, {others, size_of}, random);
  PlacedPlan plan;
  plan.two = composition.mixed < composition.tiles.size();
  for (size_t i = 0; i < composition.tiles.size(); ++i) {
    const Tile& tile = composition.tiles[i];
    const Shown shows = shown(tile.placed, t);
    if (shows.reached.height > 0 && shows.reached.width > 0)
      plan.tiles.push_back(plan_tile(std::move(files[i]), tile, shows));
    if (i + 1 == composition.mixed) plan.mixed = plan.tiles.size();
  }
  return plan;
}

}  // namespace octet
