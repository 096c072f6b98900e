// SPDX-License-Identifier: Apache-2.0
#include "src/data/place.h"

#include <cmath>
#include <cstring>
#include <numbers>

#include "kernels/operators/placed_pixel.h"

namespace octet {
namespace {

// YOLOX's (yolox/data/data_augment.py, augment_hsv): a hue of cv2 is two degrees.
constexpr int kMostHue = 10, kMostSaturation = 30, kMostValue = 30;

constexpr double kLeastShare = 0.1;  // of a box's area that is left

/// Returns a change in -most .. most in every second image, else 0.
int draw_change(int most, Random& random) {
  const int change = static_cast<int>(random.below(2 * most + 1)) - most;
  return random.below(2) == 1 ? change : 0;
}

template <class Pixel>
void mirror_rows(uint8_t* pixels, int height, int width) {
  auto* row = reinterpret_cast<Pixel*>(pixels);
  for (int y = 0; y < height; ++y, row += width) std::reverse(row, row + width);
}

Rectangle whole_input(const Transform& t) { return {0, 0, t.height, t.width}; }

/// Returns what two rectangles share.
Rectangle shared(const Rectangle& a, const Rectangle& b) {
  const int top = std::max(a.top, b.top), left = std::max(a.left, b.left);
  const int bottom = std::min(a.top + a.height, b.top + b.height), right = std::min(a.left + a.width, b.left + b.width);
  return {top, left, std::max(bottom - top, 0), std::max(right - left, 0)};
}

double draw_scale(const Transform& t, Random& random) {
  return t.scale > 0 ? random.uniform(1 - t.scale, 1 + t.scale) : 1;
}

/// Returns by how many pixels an image is moved along a side of the input.
double draw_shift(const Transform& t, int side, Random& random) {
  return t.translate > 0 ? side * random.uniform(-t.translate, t.translate) : 0;
}

/// Draws flip and colours.
void draw_changes(Placed& placed, const Transform& t, Random& random) {
  if (t.flip) placed.flip = random.below(2) == 1;
  if (!t.hsv) return;
  placed.colours.hue = draw_change(kMostHue, random);
  placed.colours.saturation = draw_change(kMostSaturation, random);
  placed.colours.value = draw_change(kMostValue, random);
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
  std::memset(out, t.classes ? kUnlabelled : kLetterboxGrey, static_cast<size_t>(t.height) * t.width * t.channels);
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

Rectangle fitted(const PictureSize& image, const Transform& t) {
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

/// Returns where the whole image lies if a random part of it fills the input.
Rectangle around_part(const PictureSize& image, const Transform& t, Random& random) {
  const Rectangle part = random_part(image, t.crop_area_min, random);
  const double down = static_cast<double>(t.height) / part.height, across = static_cast<double>(t.width) / part.width;
  const auto scaled = [](int pixels, double times) { return static_cast<int>(std::lround(pixels * times)); };
  return {-scaled(part.top, down), -scaled(part.left, across), scaled(image.height, down), scaled(image.width, across)};
}

Placed draw_placed(const PictureSize& image, const Transform& t, Random& random) {
  Placed placed{.part = t.random_resized_crop ? around_part(image, t, random) : fitted(image, t),
                .visible = whole_input(t)};
  Rectangle& part = placed.part;
  const double times = draw_scale(t, random);
  const auto scaled = [&](int side) { return std::max(1, static_cast<int>(std::lround(side * times))); };
  const Rectangle before = part;
  part.height = scaled(part.height);
  part.width = scaled(part.width);
  part.top += (before.height - part.height) / 2;  // the middle stays
  part.left += (before.width - part.width) / 2;
  part.top += static_cast<int>(std::lround(draw_shift(t, t.height, random)));
  part.left += static_cast<int>(std::lround(draw_shift(t, t.width, random)));
  if (t.turns()) {
    placed.turn = draw_turn(t.degrees, t.shear, {part.left + part.width / 2.0, part.top + part.height / 2.0}, random);
    if (!placed.turn.none()) placed.visible = part;
  }
  draw_changes(placed, t, random);
  return placed;
}

std::array<Placed, 4> draw_mosaic(const std::array<PictureSize, 4>& images, const Transform& t, Random& random) {
  const double centre_y = t.height * random.uniform(0.5, 1.5), centre_x = t.width * random.uniform(0.5, 1.5);
  const double times = draw_scale(t, random);
  const double down = draw_shift(t, t.height, random), right = draw_shift(t, t.width, random);
  Placed drawn;
  if (t.turns()) drawn.turn = draw_turn(t.degrees, t.shear, {t.width / 2.0, t.height / 2.0}, random);
  draw_changes(drawn, t, random);
  // Returns the place in the input of a rectangle between two points of the ground.
  const auto shown = [&](double y, double x, double end_y, double end_x) {
    const auto at = [&](double value, double by) { return static_cast<int>(std::lround(value * times + by)); };
    const int top = at(y, down), left = at(x, right);
    Rectangle place{top, left, std::max(at(end_y, down) - top, 1), std::max(at(end_x, right) - left, 1)};
    if (drawn.flip) place.left = t.width - place.left - place.width;
    return place;
  };
  std::array<Placed, 4> all;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool below = i >= 2, beside = i % 2 == 1;
    const Rectangle fit = fitted(images[i], t);
    const double y = below ? centre_y : centre_y - fit.height, x = beside ? centre_x : centre_x - fit.width;
    all[i] = drawn;
    all[i].part = shown(y, x, y + fit.height, x + fit.width);
    const Rectangle quarter = shown(below ? centre_y : 0, beside ? centre_x : 0, below ? 2 * t.height : centre_y,
                                    beside ? 2 * t.width : centre_x);
    all[i].visible = drawn.turn.none() ? shared(quarter, whole_input(t)) : quarter;
  }
  return all;
}

Box placed_box(const Box& box, const PictureSize& image, const Transform& t, const Placed& placed) {
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
