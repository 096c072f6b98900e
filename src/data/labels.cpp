// SPDX-License-Identifier: Apache-2.0
#include "src/data/labels.h"

#include <fmt/format.h>

#include <cmath>

#include "src/base/error.h"

namespace octet {
namespace {

class ImageLabels : public LabelWriter {
 public:
  ImageLabels(const Dataset& dataset, bool mixed) : dataset_(dataset), mixed_(mixed) {}
  std::vector<int64_t> shape() const override {
    return mixed_ ? std::vector<int64_t>{kMixedValues} : std::vector<int64_t>{};
  }
  void write_training(size_t index, const ImageSize& image, Random, int64_t* out) const override {
    write(index, image, out);
  }
  void write(size_t index, const ImageSize&, int64_t* out) const override {
    mixed_ ? write_mixed(index, index, 0, out) : static_cast<void>(*out = dataset_.label(index));
  }
  void write_mixed(size_t index, size_t other, double weight, int64_t* out) const override {
    out[0] = dataset_.label(index);
    out[1] = dataset_.label(other);
    out[2] = std::llround(weight * kMixedUnits);
  }
  void write_joined(const std::vector<Tile>& tiles, int64_t*) const override {
    throw usage_error(dataset_.describe(tiles[0].index) + ": several images have no class");
  }

 private:
  const Dataset& dataset_;
  const bool mixed_;
};

class PixelLabels : public LabelWriter {
 public:
  PixelLabels(const Dataset& dataset, const Transform& transform)
      : dataset_(dataset), transform_(mask_transform(transform)) {}
  std::vector<int64_t> shape() const override { return {transform_.height, transform_.width}; }

  void write_training(size_t index, const ImageSize& image, Random random, int64_t* out) const override {
    std::vector<uint8_t> classes(count());
    training_pixels(mask_of(index, image), transform_, random, classes.data());
    copy(classes, out);
  }

  void write_joined(const std::vector<Tile>& tiles, int64_t* out) const override {
    std::vector<uint8_t> classes(count());
    std::vector<Image> masks;
    std::vector<Placed> placed;
    for (const Tile& tile : tiles) {
      masks.push_back(mask_of(tile.index, tile.size));
      placed.push_back(tile.placed);
    }
    place(masks, transform_, placed, classes.data());
    copy(classes, out);
  }

  void write(size_t index, const ImageSize& image, int64_t* out) const override {
    std::vector<uint8_t> classes(count());
    evaluation_pixels(mask_of(index, image), transform_, classes.data());
    copy(classes, out);
  }

 private:
  Image mask_of(size_t index, const ImageSize& image) const {
    Image mask = dataset_.mask(index);
    if (ImageSize{mask.height, mask.width} == image) return mask;
    throw data_error(fmt::format("{}: {}x{} pixels, its mask has {}x{}: the mask is of another image",
                                 dataset_.describe(index), image.width, image.height, mask.width, mask.height));
  }

  static void copy(const std::vector<uint8_t>& classes, int64_t* out) {
    for (const uint8_t c : classes) *out++ = c == kUnlabelled ? kNoLabel : c;
  }

  const Dataset& dataset_;
  const Transform transform_;
};

/// Boxes of crowds are no labels to train on.
class BoxLabels : public LabelWriter {
 public:
  BoxLabels(const Dataset& dataset, const Transform& transform) : dataset_(dataset), transform_(transform) {
    for (size_t i = 0; i < dataset.size(); ++i) {
      const std::vector<BoxLabel>& boxes = dataset.boxes(i);
      most_ = std::max<int64_t>(
          most_, std::count_if(boxes.begin(), boxes.end(), [](const BoxLabel& box) { return !box.crowd; }));
    }
    const int64_t images = (transform.mosaic > 0 ? 4 : 1) * (transform.mixup > 0 ? 2 : 1);
    most_ = std::max(most_, std::min(images * most_, kJoinedBoxes));
  }

  std::vector<int64_t> shape() const override { return {most_, kBoxValues}; }

  void write_training(size_t index, const ImageSize& image, Random random, int64_t* out) const override {
    end(append({index, image, draw_placed(image, transform_, random)}, out, out), out);
  }

  void write_joined(const std::vector<Tile>& tiles, int64_t* out) const override {
    int64_t* next = out;
    for (const Tile& tile : tiles) next = append(tile, next, out);
    end(next, out);
  }

  void write(size_t, const ImageSize&, int64_t*) const override {}

 private:
  /// Writes the boxes of an image from `next` on, as long as there are places, and returns the next place.
  int64_t* append(const Tile& tile, int64_t* next, const int64_t* out) const {
    for (const BoxLabel& label : dataset_.boxes(tile.index)) {
      const Box box = placed_box(label.box, tile.size, transform_, tile.placed);
      if (label.crowd || box.area() == 0) continue;
      if (next == out + count()) break;
      *next++ = label.class_index;
      for (const double length : {box.x, box.y, box.width, box.height}) *next++ = std::llround(length * kBoxUnits);
    }
    return next;
  }

  void end(int64_t* next, const int64_t* out) const {
    for (; next < out + count(); next += kBoxValues) {
      std::fill_n(next, kBoxValues, 0);
      *next = kNoLabel;
    }
  }

  const Dataset& dataset_;
  const Transform transform_;
  int64_t most_ = 1;
};

}  // namespace

size_t LabelWriter::count() const {
  size_t product = 1;
  for (const int64_t extent : shape()) product *= static_cast<size_t>(extent);
  return product;
}

void LabelWriter::write_mixed(size_t, size_t, double, int64_t*) const {
  throw usage_error("loader: labels of pixels and boxes are not mixed by weights");
}

std::unique_ptr<LabelWriter> label_writer(const Dataset& dataset, const Transform& transform) {
  switch (dataset.labels()) {
    case Labels::image:
      break;
    case Labels::pixels:
      return std::make_unique<PixelLabels>(dataset, transform);
    case Labels::boxes:
      return std::make_unique<BoxLabels>(dataset, transform);
  }
  return std::make_unique<ImageLabels>(dataset, transform.mixup_alpha > 0);
}

}  // namespace octet
