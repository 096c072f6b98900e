// SPDX-License-Identifier: Apache-2.0
#include "src/data/turn.h"

#include <cmath>
#include <numbers>

namespace octet {
namespace {

/// Returns the part of a polygon in which room(point) is not negative; room is linear (Sutherland and Hodgman,
/// Reentrant polygon clipping, 1974).
template <class Room>
Polygon cut_at(const Polygon& polygon, const Room& room) {
  Polygon left;
  for (size_t i = 0; i < polygon.size(); ++i) {
    const Point &from = polygon[i], &to = polygon[(i + 1) % polygon.size()];
    const double room_from = room(from), room_to = room(to);
    if (room_from >= 0) left.push_back(from);
    if ((room_from < 0) == (room_to < 0)) continue;
    const double share = room_from / (room_from - room_to);
    left.push_back({from.x + share * (to.x - from.x), from.y + share * (to.y - from.y)});
  }
  return left;
}

}  // namespace

Point Turn::operator()(const Point& point) const {
  const double x = point.x - centre.x, y = point.y - centre.y;
  return {centre.x + xx * x + xy * y, centre.y + yx * x + yy * y};
}

Turn Turn::inverse() const {
  const double whole = area();
  return {yy / whole, -xy / whole, -yx / whole, xx / whole, centre};
}

Turn draw_turn(double degrees, double shear, const Point& centre, Random& random) {
  const auto draw = [&](double most) { return random.uniform(-most, most) * std::numbers::pi / 180; };
  const double angle = draw(degrees), along_x = std::tan(draw(shear)), along_y = std::tan(draw(shear));
  const double c = std::cos(angle), s = std::sin(angle);
  return {c + along_x * s, along_x * c - s, along_y * c + s, c - along_y * s, centre};  // shear after the rotation
}

Polygon turned(const Box& box, const Turn& turn) {
  const double right = box.x + box.width, bottom = box.y + box.height;
  return {turn({box.x, box.y}), turn({right, box.y}), turn({right, bottom}), turn({box.x, bottom})};
}

Polygon cut_to(Polygon polygon, double width, double height) {
  polygon = cut_at(polygon, [](const Point& p) { return p.x; });
  polygon = cut_at(polygon, [](const Point& p) { return p.y; });
  polygon = cut_at(polygon, [&](const Point& p) { return width - p.x; });
  return cut_at(polygon, [&](const Point& p) { return height - p.y; });
}

double area(const Polygon& polygon) {
  double twice = 0;
  for (size_t i = 0; i < polygon.size(); ++i) {
    const Point &from = polygon[i], &to = polygon[(i + 1) % polygon.size()];
    twice += from.x * to.y - to.x * from.y;
  }
  return std::abs(twice) / 2;
}

Box around(const Polygon& polygon) {
  if (polygon.empty()) return {};
  double left = polygon.front().x, right = left, top = polygon.front().y, bottom = top;
  for (const Point& point : polygon) {
    left = std::min(left, point.x), right = std::max(right, point.x);
    top = std::min(top, point.y), bottom = std::max(bottom, point.y);
  }
  return {left, top, right - left, bottom - top};
}

}  // namespace octet
