// SPDX-License-Identifier: Apache-2.0
#include "src/data/place.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

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

/// An RGB pixel as hue (in sixths of the circle), saturation and value (0..255): Smith, Color gamut transform pairs,
/// 1978.
struct Hsv {
  float hue = 0, saturation = 0, value = 0;
};

Hsv hsv_of(const uint8_t* rgb) {
  const float r = rgb[0], g = rgb[1], b = rgb[2];
  const float value = std::max({r, g, b}), range = value - std::min({r, g, b});
  if (range == 0) return {0, 0, value};
  float hue = 4 + (r - g) / range;
  if (value == r)
    hue = (g - b) / range;
  else if (value == g)
    hue = 2 + (b - r) / range;
  return {hue, 255 * range / value, value};
}

void write_rgb(const Hsv& pixel, uint8_t* rgb) {
  const float range = pixel.value * pixel.saturation / 255;
  for (int c = 0; c < 3; ++c) {  // red is highest around hue 0, green around 2, blue around 4
    float from = std::fmod(pixel.hue + static_cast<float>(4 * c), 6.0f);
    if (from < 0) from += 6;
    const float share = std::clamp(std::abs(from - 3) - 1, 0.0f, 1.0f);
    rgb[c] = static_cast<uint8_t>(std::lround(pixel.value - range + range * share));
  }
}

template <class Pixel>
void mirror_rows(uint8_t* pixels, int height, int width) {
  auto* row = reinterpret_cast<Pixel*>(pixels);
  for (int y = 0; y < height; ++y, row += width) std::reverse(row, row + width);
}

}  // namespace

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

Placed draw_placed(const PictureSize& image, const Transform& t, Random& random) {
  Placed placed{.part = fitted(image, t)};
  Rectangle& part = placed.part;
  if (t.scale > 0) {
    const double times = random.uniform(1 - t.scale, 1 + t.scale);
    const auto scaled = [&](int side) { return std::max(1, static_cast<int>(std::lround(side * times))); };
    const Rectangle before = part;
    part.height = scaled(part.height);
    part.width = scaled(part.width);
    part.top += (before.height - part.height) / 2;  // the middle stays
    part.left += (before.width - part.width) / 2;
  }
  if (t.translate > 0) {
    const auto moved = [&](int side) {
      return static_cast<int>(std::lround(side * random.uniform(-t.translate, t.translate)));
    };
    part.top += moved(t.height);
    part.left += moved(t.width);
  }
  if (t.flip) placed.flip = random.below(2) == 1;
  if (t.hsv) {
    placed.hue = draw_change(kMostHue, random);
    placed.saturation = draw_change(kMostSaturation, random);
    placed.value = draw_change(kMostValue, random);
  }
  return placed;
}

Box placed_box(const Box& box, const PictureSize& image, const Transform& t, const Placed& placed) {
  const Rectangle& part = placed.part;
  const double scale_x = static_cast<double>(part.width) / image.width;
  const double scale_y = static_cast<double>(part.height) / image.height;
  const auto within = [](double value, int side) { return std::clamp(value, 0.0, static_cast<double>(side)); };
  double from = within(box.x, image.width), to = within(box.x + box.width, image.width);  // annotations reach outside
  if (placed.flip) from = image.width - std::exchange(to, image.width - from);
  const double first = within(box.y, image.height), last = within(box.y + box.height, image.height);
  const double left = within(part.left + from * scale_x, t.width), right = within(part.left + to * scale_x, t.width);
  const double top = within(part.top + first * scale_y, t.height), bottom = within(part.top + last * scale_y, t.height);
  const Box cut{left, top, right - left, bottom - top};
  const bool enough = cut.area() >= kLeastShare * (to - from) * (last - first) * scale_x * scale_y;
  return enough && std::min(cut.width, cut.height) >= 1 ? cut : Box{};
}

void change_colours(Image& image, const Placed& placed) {
  const auto changed = [](float value, int by) { return std::clamp(value + static_cast<float>(by), 0.0f, 255.0f); };
  if (placed.hue == 0 && placed.saturation == 0 && placed.value == 0) return;
  const auto step = static_cast<size_t>(image.channels);
  for (size_t i = 0; i < image.pixels.size(); i += step) {
    uint8_t* pixel = &image.pixels[i];
    if (step == 1) {
      *pixel = static_cast<uint8_t>(changed(*pixel, placed.value));
      continue;
    }
    Hsv hsv = hsv_of(pixel);
    hsv.hue += static_cast<float>(placed.hue) / 60;
    if (hsv.saturation > 0) hsv.saturation = changed(hsv.saturation, placed.saturation);
    hsv.value = changed(hsv.value, placed.value);
    write_rgb(hsv, pixel);
  }
}

void place(const Image& image, const Transform& t, const Placed& placed, uint8_t* out) {
  const Rectangle& part = placed.part;
  const size_t row = static_cast<size_t>(t.width) * t.channels;
  std::memset(out, t.classes ? kUnlabelled : kLetterboxGrey, t.height * row);
  Image resized = resize(view(image), part.height, part.width, t);
  if (placed.flip) mirror(resized.pixels.data(), resized.height, resized.width, resized.channels);
  if (!t.classes) change_colours(resized, placed);
  const int left = std::max(part.left, 0), right = std::min(part.left + part.width, t.width);
  if (left >= right) return;
  const size_t bytes = static_cast<size_t>(right - left) * t.channels;
  for (int y = std::max(part.top, 0); y < std::min(part.top + part.height, t.height); ++y) {
    const size_t from = (static_cast<size_t>(y - part.top) * part.width + (left - part.left)) * t.channels;
    std::memcpy(out + y * row + static_cast<size_t>(left) * t.channels, &resized.pixels[from], bytes);
  }
}

}  // namespace octet
