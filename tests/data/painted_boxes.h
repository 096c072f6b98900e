// SPDX-License-Identifier: Apache-2.0
// Images with a painted box in each, which tests find again by its colour wherever training images put it.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "src/data/dataset.h"
#include "src/data/loader.h"

namespace octet::testing {

using Colour = std::array<uint8_t, 3>;

class PaintedBoxes : public Dataset {
 public:
  struct Painting {
    ImageSize size;
    Box box;
    Colour colour;
  };

  /// Twelve images. Image i has painting(i), of class i, on a ground of grey.
  PaintedBoxes(uint8_t ground, const std::function<Painting(int i)>& painting) {
    for (int i = 0; i < 12; ++i) {
      const auto [size, box, colour] = painting(i);
      Image image{size.height, size.width, 3,
                  std::vector<uint8_t>(static_cast<size_t>(size.height) * size.width * 3, ground)};
      for (int y = 0; y < size.height; ++y)
        for (int x = 0; x < size.width; ++x)
          if (x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height)
            std::copy_n(colour.data(), 3, &image.pixels[static_cast<size_t>(y * size.width + x) * 3]);
      images_.push_back(std::move(image));
      boxes_.push_back({{box, i, box.area(), false}});
      names_.push_back(fmt::format("c{}", i));
    }
  }
  size_t size() const override { return images_.size(); }
  int channels() const override { return 3; }
  Labels labels() const override { return Labels::boxes; }
  int label(size_t) const override { return 0; }
  Image read(size_t index) const override { return images_[index]; }
  const std::vector<BoxLabel>& boxes(size_t index) const override { return boxes_[index]; }
  const std::vector<std::string>& class_names() const override { return names_; }
  std::string describe(size_t) const override { return "painted"; }

 private:
  std::vector<Image> images_;
  std::vector<std::vector<BoxLabel>> boxes_;
  std::vector<std::string> names_;
};

/// Returns the labels of image `i` of a batch, classes with their boxes.
inline std::vector<std::pair<int, Box>> labels_of(const Batch& batch, int i) {
  const size_t count = batch.labels.size() / static_cast<size_t>(batch.size);
  std::vector<std::pair<int, Box>> labels;
  for (size_t g = 0; g < count; g += kBoxValues) {
    const int64_t* v = batch.labels.data() + static_cast<size_t>(i) * count + g;
    const auto length = [&](int of) { return static_cast<double>(v[of]) / kBoxUnits; };
    if (v[0] != kNoLabel) labels.emplace_back(static_cast<int>(v[0]), Box{length(1), length(2), length(3), length(4)});
  }
  return labels;
}

/// Whether the centre of pixel (x, y) lies in a box that is larger by `more` on each side.
inline bool holds(const Box& box, int x, int y, double more) {
  return x + 0.5 > box.x - more && x + 0.5 < box.x + box.width + more && y + 0.5 > box.y - more &&
         y + 0.5 < box.y + box.height + more;
}

}  // namespace octet::testing
