// SPDX-License-Identifier: Apache-2.0
#include "src/data/labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/base/error.h"
#include "src/data/place.h"

namespace octet {
namespace {

class ImageLabels : public LabelWriter {
 public:
  explicit ImageLabels(const Dataset& dataset) : dataset_(dataset) {}
  std::vector<int64_t> shape() const override { return {}; }
  void write_training(size_t index, const PictureSize& image, Random, int64_t* out) const override {
    write(index, image, out);
  }
  void write(size_t index, const PictureSize&, int64_t* out) const override { *out = dataset_.label(index); }

 private:
  const Dataset& dataset_;
};

class PixelLabels : public LabelWriter {
 public:
  PixelLabels(const Dataset& dataset, const Transform& transform)
      : dataset_(dataset), transform_(mask_transform(transform)) {}
  std::vector<int64_t> shape() const override { return {transform_.height, transform_.width}; }

  void write_training(size_t index, const PictureSize& image, Random random, int64_t* out) const override {
    std::vector<uint8_t> classes(count());
    training_pixels(mask_of(index, image), transform_, random, classes.data());
    copy(classes, out);
  }

  void write(size_t index, const PictureSize& image, int64_t* out) const override {
    std::vector<uint8_t> classes(count());
    evaluation_pixels(mask_of(index, image), transform_, classes.data());
    copy(classes, out);
  }

 private:
  Image mask_of(size_t index, const PictureSize& image) const {
    Image mask = dataset_.mask(index);
    if (PictureSize{mask.height, mask.width} == image) return mask;
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
  }

  std::vector<int64_t> shape() const override { return {most_, kBoxValues}; }

  void write_training(size_t index, const PictureSize& image, Random random, int64_t* out) const override {
    const Placed placed = draw_placed(image, transform_, random);
    int64_t* next = out;
    for (const BoxLabel& label : dataset_.boxes(index)) {
      const Box box = placed_box(label.box, image, transform_, placed);
      if (label.crowd || box.area() == 0) continue;
      *next++ = label.class_index;
      for (const double length : {box.x, box.y, box.width, box.height}) *next++ = std::llround(length * kBoxUnits);
    }
    for (; next < out + count(); next += kBoxValues) {
      std::fill_n(next, kBoxValues, 0);
      *next = kNoLabel;
    }
  }

  void write(size_t, const PictureSize&, int64_t*) const override {}

 private:
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

std::unique_ptr<LabelWriter> label_writer(const Dataset& dataset, const Transform& transform) {
  switch (dataset.labels()) {
    case Labels::image:
      break;
    case Labels::pixels:
      return std::make_unique<PixelLabels>(dataset, transform);
    case Labels::boxes:
      return std::make_unique<BoxLabels>(dataset, transform);
  }
  return std::make_unique<ImageLabels>(dataset);
}

}  // namespace octet
