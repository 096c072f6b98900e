// SPDX-License-Identifier: Apache-2.0
#include "src/data/place.h"

#include <cmath>
#include <cstring>

#include "kernels/training/placed_pixel.h"

namespace octet {
namespace {

constexpr double kLeastShare = 0.1;  // of a box's area that is left

template <class Pixel>
void mirror_rows(uint8_t* pixels, int height, int width) {
  auto* row = reinterpret_cast<Pixel*>(pixels);
  for (int y = 0; y < height; ++y, row += width) std::reverse(row, row + width);
}

Box box_of(const Rectangle& r) { return {1.0 * r.left, 1.0 * r.top, 1.0 * r.width, 1.0 * r.height}; }

/// Writes what an image has at (x, y) from its corner: the mean of the nearest pixels, of classes the one that is
/// there.
template <int kChannels>
void write_pixel(const Image& image, double x, double y, bool classes, uint8_t* out) {
  using Pixel = kernels::PixelOf<kChannels>;
  const auto at = [&](int row, int column) {
    const int inside_row = std::clamp(row, 0, image.height - 1), inside_column = std::clamp(column, 0, image.width - 1);
    Pixel pixel;
    std::copy_n(&image.pixels[(static_cast<size_t>(inside_row) * image.width + inside_column) * kChannels], kChannels,
                pixel.values);
    return pixel;
  };
  const Pixel pixel =
      classes ? at(static_cast<int>(y), static_cast<int>(x)) : kernels::mean_of_nearest<kChannels>(x, y, at);
  std::copy_n(pixel.values, kChannels, out);
}

/// Writes the pixels of the input that show a resized image after it is turned.
template <int kChannels>
void add_turned(const Image& image, const Transform& t, const Shown& shown, const Rectangle& part, uint8_t* out) {
  const Rectangle &seen = shown.seen, &reached = shown.reached;
  for (int y = reached.top; y < reached.top + reached.height; ++y)
    for (int x = reached.left; x < reached.left + reached.width; ++x) {
      const Point from = shown.back({x + 0.5, y + 0.5});
      if (from.x < seen.left || from.x >= seen.left + seen.width || from.y < seen.top ||
          from.y >= seen.top + seen.height)
        continue;
      write_pixel<kChannels>(image, from.x - part.left, from.y - part.top, t.classes,
                             out + (static_cast<size_t>(y) * t.width + x) * kChannels);
    }
}

void add_placed(const Image& image, const Transform& t, const Placed& placed, uint8_t* out) {
  const Rectangle& part = placed.part;
  const Shown shows = shown(placed, t);
  const Rectangle& seen = shows.seen;
  if (seen.height == 0 || seen.width == 0) return;
  const size_t row = static_cast<size_t>(t.width) * t.channels, bytes = static_cast<size_t>(seen.width) * t.channels;
  Image resized = resize(view(image), part.height, part.width, t);
  if (placed.flip) mirror(resized.pixels.data(), resized.height, resized.width, resized.channels);
  if (!t.classes) change_colours(resized, placed.colours);
  if (!placed.turn.none())
    return t.channels == 1 ? add_turned<1>(resized, t, shows, part, out) : add_turned<3>(resized, t, shows, part, out);
  for (int y = seen.top; y < seen.top + seen.height; ++y) {
    const size_t from = (static_cast<size_t>(y - part.top) * part.width + (seen.left - part.left)) * t.channels;
    std::memcpy(out + y * row + static_cast<size_t>(seen.left) * t.channels, &resized.pixels[from], bytes);
  }
}

void clear_input(const Transform& t, uint8_t* out) {
  std::memset(out, t.classes ? kUnlabelled : kLetterboxGrey, t.bytes());
}

}  // namespace

void exchange_red_and_blue(uint8_t* pixels, int height, int width) {
  const size_t bytes = static_cast<size_t>(height) * width * 3;
  for (size_t i = 0; i < bytes; i += 3) std::swap(pixels[i], pixels[i + 2]);
}

void mirror(uint8_t* pixels, int height, int width, int channels) {
  struct Colour {
    uint8_t values[3];
  };
  channels == 1 ? mirror_rows<uint8_t>(pixels, height, width) : mirror_rows<Colour>(pixels, height, width);
}

Rectangle fitted(const ImageSize& image, const Transform& t) {
  if (t.fit == Fit::stretch) return {0, 0, t.height, t.width};
  const double scale =
      std::min(static_cast<double>(t.height) / image.height, static_cast<double>(t.width) / image.width);
  const auto side = [&](int pixels, int most) {
    const double exact = pixels * scale;
    const long rounded = t.fit == Fit::letterbox ? std::lround(exact) : static_cast<long>(exact + 1e-9);
    return static_cast<int>(std::clamp<long>(rounded, 1, most));
  };
  const int height = side(image.height, t.height), width = side(image.width, t.width);
  if (t.fit == Fit::letterbox_corner) return {0, 0, height, width};
  return {(t.height - height) / 2, (t.width - width) / 2, height, width};
}

Box placed_box(const Box& box, const ImageSize& image, const Transform& t, const Placed& placed) {
  const Rectangle& part = placed.part;
  const double scale_x = static_cast<double>(part.width) / image.width;
  const double scale_y = static_cast<double>(part.height) / image.height;
  const auto within = [](double value, int side) { return std::clamp(value, 0.0, static_cast<double>(side)); };
  double from = within(box.x, image.width), to = within(box.x + box.width, image.width);  // annotations reach outside
  if (placed.flip) from = image.width - std::exchange(to, image.width - from);
  const double first = within(box.y, image.height), last = within(box.y + box.height, image.height);
  const Rectangle& seen = placed.visible;
  const auto across = [&](double x) {
    return std::clamp<double>(part.left + x * scale_x, seen.left, seen.left + seen.width);
  };
  const auto along = [&](double y) {
    return std::clamp<double>(part.top + y * scale_y, seen.top, seen.top + seen.height);
  };
  const double left = across(from), right = across(to), top = along(first), bottom = along(last);
  const Box cut{left, top, right - left, bottom - top};
  const double whole = (to - from) * (last - first) * scale_x * scale_y;
  const auto if_enough = [](const Box& box, double area, double of) {
    return area >= kLeastShare * of && std::min(box.width, box.height) >= 1 ? box : Box{};
  };
  if (placed.turn.none()) return if_enough(cut, cut.area(), whole);
  const Polygon shape = cut_to(turned(cut, placed.turn), t.width, t.height);
  return if_enough(around(shape), area(shape), whole * placed.turn.area());
}

Shown shown(const Placed& placed, const Transform& t) {
  const Rectangle seen = shared(placed.part, placed.visible);
  if (placed.turn.none() || seen.height == 0 || seen.width == 0) return {seen, seen, {}};
  const Polygon shape = cut_to(turned(box_of(seen), placed.turn), t.width, t.height);
  if (shape.empty()) return {seen, {}, placed.turn.inverse()};
  const Box box = around(shape);
  const int top = static_cast<int>(box.y), left = static_cast<int>(box.x);
  const int bottom = std::min(t.height, static_cast<int>(box.y + box.height) + 1);
  const int right = std::min(t.width, static_cast<int>(box.x + box.width) + 1);
  return {seen, {top, left, bottom - top, right - left}, placed.turn.inverse()};
}

void change_colours(Image& image, const kernels::ColourChange& by) {
  if (by.none()) return;
  const auto step = static_cast<size_t>(image.channels);
  const auto change = step == 1 ? kernels::change_colour<1> : kernels::change_colour<3>;
  for (size_t i = 0; i < image.pixels.size(); i += step) change(by, &image.pixels[i]);
}

void place(std::span<const Image> images, const Transform& t, std::span<const Placed> placed, uint8_t* out) {
  clear_input(t, out);
  for (size_t i = 0; i < images.size(); ++i) add_placed(images[i], t, placed[i], out);
}

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
  const kernels::PlaneTurn turn = plane();
  return {turn.x_of(point.x, point.y), turn.y_of(point.x, point.y)};
}

Turn Turn::inverse() const {
  const double whole = area();
  return {yy / whole, -xy / whole, -yx / whole, xx / whole, centre};
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
