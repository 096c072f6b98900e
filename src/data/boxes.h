// SPDX-License-Identifier: Apache-2.0
// Boxes in images: those that annotations say and those that a detector finds. Lengths are pixels of the image; (0, 0)
// is the upper left corner of its upper left pixel.
#pragma once

#include <algorithm>

namespace octet {

struct Box {
  double x = 0, y = 0;  ///< the upper left corner
  double width = 0, height = 0;
  double area() const { return width * height; }
  bool operator==(const Box&) const = default;
};

/// Returns the area that two boxes share.
inline double intersection(const Box& a, const Box& b) {
  const double width = std::min(a.x + a.width, b.x + b.width) - std::max(a.x, b.x);
  const double height = std::min(a.y + a.height, b.y + b.height) - std::max(a.y, b.y);
  return width > 0 && height > 0 ? width * height : 0;
}

/// Returns intersection over union, 0 where nothing is shared.
inline double intersection_over_union(const Box& a, const Box& b) {
  const double shared = intersection(a, b);
  return shared > 0 ? shared / (a.area() + b.area() - shared) : 0;
}

/// What annotations say is in an image.
struct BoxLabel {
  Box box;
  int class_index = 0;
  double area = 0;     ///< of the object, by which COCO tells small from large: of its outline where there is one
  bool crowd = false;  ///< several objects that have no boxes of their own
};

/// What a detector found.
struct Detection {
  Box box;
  int class_index = 0;
  double score = 0;  ///< 0..1
};

}  // namespace octet
