// SPDX-License-Identifier: Apache-2.0
#include "src/data/colours.h"

#include <algorithm>
#include <vector>

namespace octet {
namespace {

uint8_t rounded(float value) { return static_cast<uint8_t>(std::clamp(value, 0.0f, 255.0f) + 0.5f); }

/// Calls change(pixel) for the first value of each pixel.
template <class Change>
void for_pixels(const Pixels& pixels, const Change& change) {
  for (uint8_t *pixel = pixels.values, *end = pixel + pixels.all().size(); pixel != end; pixel += pixels.channels)
    change(pixel);
}

}  // namespace

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
  const float range = pixel.value * pixel.saturation / 255, hue = pixel.hue + (pixel.hue < 0 ? 6 : 0);
  const int sixth = static_cast<int>(hue);
  const float along = hue - static_cast<float>(sixth);
  const float values[] = {pixel.value, pixel.value - range * (1 - along), pixel.value - range * along,
                          pixel.value - range};  // highest, rising, falling, lowest
  constexpr int kOfSixth[6][3] = {{0, 1, 3}, {2, 0, 3}, {3, 0, 1}, {3, 2, 0}, {1, 3, 0}, {0, 3, 2}};
  for (int c = 0; c < 3; ++c) rgb[c] = static_cast<uint8_t>(values[kOfSixth[sixth % 6][c]] + 0.5f);
}

float lightness(const uint8_t* pixel, int channels) {
  if (channels == 1) return pixel[0];
  return 0.299f * pixel[0] + 0.587f * pixel[1] + 0.114f * pixel[2];
}

void change_brightness(const Pixels& pixels, float factor) {
  for (uint8_t& value : pixels.all()) value = rounded(factor * value);
}

void change_contrast(const Pixels& pixels, float factor) {
  double sum = 0;
  for_pixels(pixels, [&](const uint8_t* pixel) { sum += lightness(pixel, pixels.channels); });
  const float rest = (1 - factor) * static_cast<float>(sum / static_cast<double>(pixels.count()));
  for (uint8_t& value : pixels.all()) value = rounded(factor * value + rest);
}

void change_saturation(const Pixels& pixels, float factor) {
  if (pixels.channels == 1) return;
  for_pixels(pixels, [&](uint8_t* pixel) {
    const float rest = (1 - factor) * lightness(pixel, pixels.channels);
    for (int c = 0; c < 3; ++c) pixel[c] = rounded(factor * pixel[c] + rest);
  });
}

void turn_hue(const Pixels& pixels, float by) {
  if (pixels.channels == 1) return;
  for_pixels(pixels, [&](uint8_t* pixel) {
    Hsv hsv = hsv_of(pixel);
    hsv.hue += 6 * by;
    write_rgb(hsv, pixel);
  });
}

void jitter_colours(const Pixels& pixels, const ColourJitter& jitter, Random& random) {
  const auto factor = [&](double most) {
    return static_cast<float>(random.uniform(std::max(0.0, 1 - most), 1 + most));
  };
  std::vector<int> order = {0, 1, 2, 3};
  random.shuffle(order);
  for (const int change : order) {
    if (change == 0 && jitter.brightness > 0) change_brightness(pixels, factor(jitter.brightness));
    if (change == 1 && jitter.contrast > 0) change_contrast(pixels, factor(jitter.contrast));
    if (change == 2 && jitter.saturation > 0) change_saturation(pixels, factor(jitter.saturation));
    if (change == 3 && jitter.hue > 0) turn_hue(pixels, static_cast<float>(random.uniform(-jitter.hue, jitter.hue)));
  }
}

}  // namespace octet
