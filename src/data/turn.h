// SPDX-License-Identifier: Apache-2.0
// Rotation and shear of an image that is placed in the network's input, and of the boxes in it.
#pragma once

#include <vector>

#include "src/base/random.h"
#include "src/data/boxes.h"

namespace octet {

struct Point {
  double x = 0, y = 0;
};

/// Corners in order, of a convex shape.
using Polygon = std::vector<Point>;

/// A linear map of the input's plane that leaves one point where it is.
struct Turn {
  double xx = 1, xy = 0, yx = 0, yy = 1;  ///< a point (x, y) from the centre comes to (xx x + xy y, yx x + yy y)
  Point centre;

  bool none() const { return xx == 1 && xy == 0 && yx == 0 && yy == 1; }
  double area() const { return xx * yy - xy * yx; }  ///< of what had the area 1
  Point operator()(const Point& point) const;
  Turn inverse() const;
};

/// Draws a rotation by up to `degrees`, clockwise or not, and a shear of x and of y by up to `shear` degrees each,
/// which is less than 45.
Turn draw_turn(double degrees, double shear, const Point& centre, Random& random);

/// Returns the four corners of a box, turned.
Polygon turned(const Box& box, const Turn& turn);

/// Returns what of a polygon lies in 0 .. width, 0 .. height.
Polygon cut_to(Polygon polygon, double width, double height);

double area(const Polygon& polygon);

/// Returns the smallest box around a polygon; an empty box around none.
Box around(const Polygon& polygon);

}  // namespace octet
