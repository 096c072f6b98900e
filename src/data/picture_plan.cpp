// SPDX-License-Identifier: Apache-2.0
#include "src/data/picture_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace octet {
namespace {

/// Returns the part of a rectangle that lies in the input.
Rectangle inside_input(const Rectangle& r, const Transform& t) {
  const int top = std::clamp(r.top, 0, t.height), left = std::clamp(r.left, 0, t.width);
  return {top, left, std::clamp(r.top + r.height, top, t.height) - top,
          std::clamp(r.left + r.width, left, t.width) - left};
}

const uint8_t* bytes_of(const std::string& file) { return reinterpret_cast<const uint8_t*>(file.data()); }

}  // namespace

PictureFile read_picture_file(const Dataset& dataset, size_t index) {
  PictureFile picture;
  std::optional<std::string> file = dataset.file(index);
  if (!file) {
    picture.image = dataset.read(index);
    picture.why_cpu = "no files";
    return picture;
  }
  const std::string name = dataset.describe(index);
  const PictureHeader header = decode_header(bytes_of(*file), file->size(), name);
  const bool turned = dataset.orientation() == Orientation::exif && header.orientation != 1;
  if (!turned && header.why_cpu.empty()) {
    picture.file = std::move(*file);
    picture.image = {header.height, header.width, dataset.channels(), {}};
  } else {
    picture.image = decode_image(bytes_of(*file), file->size(), dataset.channels(), name, dataset.orientation());
    picture.why_cpu = header.why_cpu.empty() ? "turned as their EXIF data says" : header.why_cpu;
  }
  dataset.require_size(index, {picture.image.height, picture.image.width});
  return picture;
}

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

std::string why_not_planned(const Transform& t) {
  if (t.jitter.any() || t.rand_augment > 0 || t.mixup_alpha > 0)
    return "data.color_jitter, rand_augment and mixup_alpha change pixels on the CPU";
  return "";
}

PicturePlan plan_picture(const Dataset& dataset, size_t index, const Transform& t, Random& random) {
  PicturePlan plan{read_picture_file(dataset, index)};
  const PictureSize size{plan.image.height, plan.image.width};
  const PictureSize resized = t.resize > 0 && !t.random_resized_crop ? resized_size(size, t.resize) : size;
  const Augmentation drawn = draw_augmentation(resized, t, random);
  const Rectangle& part = drawn.part;  // of the image, to be resized; or the crop of the image that was resized
  if (t.random_resized_crop) {
    plan.rows = part_of(triangle_filter(part.height, t.height), 0, t.height, false, part.top);
    plan.columns = part_of(triangle_filter(part.width, t.width), 0, t.width, drawn.flip, part.left);
  } else {
    plan.rows = part_of(triangle_filter(size.height, resized.height), part.top, t.height, false, 0);
    plan.columns = part_of(triangle_filter(size.width, resized.width), part.left, t.width, drawn.flip, 0);
  }
  plan.filled = {inside_input({drawn.cut_y, drawn.cut_x, t.cutout, t.cutout}, t), inside_input(drawn.erased, t)};
  return plan;
}

void decode_by_cpu(PictureFile& picture, int channels, const std::string& name, const std::string& why) {
  picture.image = decode_image(bytes_of(picture.file), picture.file.size(), channels, name);
  picture.file.clear();
  picture.why_cpu = why;
}

}  // namespace octet
