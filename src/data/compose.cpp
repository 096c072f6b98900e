// SPDX-License-Identifier: Apache-2.0
// The random choices for training images that are placed: where each lies, and which are joined.
#include <cmath>
#include <numbers>

#include "src/data/place.h"

namespace octet {
namespace {

// YOLOX's (yolox/data/data_augment.py, augment_hsv): a hue of cv2 is two degrees.
constexpr int kMostHue = 10, kMostSaturation = 30, kMostValue = 30;

/// Returns a change in -most .. most in every second image, else 0.
int draw_change(int most, Random& random) {
  const int change = static_cast<int>(random.below(2 * most + 1)) - most;
  return random.below(2) == 1 ? change : 0;
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

/// Returns where the whole image lies if a random part of it fills the input.
Rectangle around_part(const ImageSize& image, const Transform& t, Random& random) {
  const Rectangle part = random_part(image, t.crop_area_min, random);
  const double down = static_cast<double>(t.height) / part.height, across = static_cast<double>(t.width) / part.width;
  const auto scaled = [](int pixels, double times) { return static_cast<int>(std::lround(pixels * times)); };
  return {-scaled(part.top, down), -scaled(part.left, across), scaled(image.height, down), scaled(image.width, across)};
}

}  // namespace

Turn draw_turn(double degrees, double shear, const Point& centre, Random& random) {
  const auto draw = [&](double most) { return random.uniform(-most, most) * std::numbers::pi / 180; };
  const double angle = draw(degrees), along_x = std::tan(draw(shear)), along_y = std::tan(draw(shear));
  const double c = std::cos(angle), s = std::sin(angle);
  return {c + along_x * s, along_x * c - s, along_y * c + s, c - along_y * s, centre};  // shear after the rotation
}

Placed draw_placed(const ImageSize& image, const Transform& t, Random& random) {
  Placed placed{.part = t.random_resized_crop ? around_part(image, t, random) : fitted(image, t), .visible = t.input()};
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

std::array<Placed, 4> draw_mosaic(const std::array<ImageSize, 4>& images, const Transform& t, Random& random) {
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
    all[i].visible = drawn.turn.none() ? shared(quarter, t.input()) : quarter;
  }
  return all;
}

namespace {

size_t draw_other(const ImageSource& source, Random& random) {
  return source.others[random.below(static_cast<uint32_t>(source.others.size()))];
}

/// Adds an image alone or, in a share of all cases, a mosaic of it and three others.
void add_tiles(size_t index, const Transform& t, bool join, const ImageSource& source, Random& random,
               std::vector<Tile>& tiles) {
  const bool mosaic = join && t.mosaic > 0 && random.uniform(0, 1) < t.mosaic;
  const size_t first = tiles.size();
  tiles.push_back({index, source.size_of(index), {}});
  if (!mosaic) {
    tiles.back().placed = draw_placed(tiles.back().size, t, random);
    return;
  }
  std::array<ImageSize, 4> sizes = {tiles.back().size};
  for (size_t i = 1; i < sizes.size(); ++i) {
    const size_t other = draw_other(source, random);
    sizes[i] = source.size_of(other);
    tiles.push_back({other, sizes[i], {}});
  }
  const std::array<Placed, 4> placed = draw_mosaic(sizes, t, random);
  for (size_t i = 0; i < placed.size(); ++i) tiles[first + i].placed = placed[i];
}

}  // namespace

Composition compose(size_t index, const Transform& t, bool join, const ImageSource& source, Random& random) {
  Composition composition;
  add_tiles(index, t, join, source, random, composition.tiles);
  composition.mixed = composition.tiles.size();
  if (join && t.mixup > 0 && random.uniform(0, 1) < t.mixup)
    add_tiles(draw_other(source, random), t, join, source, random, composition.tiles);
  return composition;
}

void write_composition(std::span<const Image> images, const Composition& composition, const Transform& t,
                       uint8_t* out) {
  std::vector<Placed> placed;
  for (const Tile& tile : composition.tiles) placed.push_back(tile.placed);
  const size_t mixed = composition.mixed;
  const std::span<const Placed> all = placed;
  place(images.first(mixed), t, all.first(mixed), out);
  if (mixed < images.size()) {
    std::vector<uint8_t> second(t.bytes());
    place(images.subspan(mixed), t, all.subspan(mixed), second.data());
    for (size_t i = 0; i < second.size(); ++i) out[i] = static_cast<uint8_t>((out[i] + second[i] + 1) / 2);
  }
  if (t.order == ChannelOrder::bgr) exchange_red_and_blue(out, t.height, t.width);
}

}  // namespace octet
