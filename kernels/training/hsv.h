// SPDX-License-Identifier: Apache-2.0
// Hue, saturation and value of pixels, and how training changes them; the same arithmetic on CPU and GPU.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/core/quantize.h"

namespace octet::kernels {

/// An RGB pixel as hue (in sixths of the circle), saturation and value (0..255): Smith, Color gamut transform pairs,
/// 1978.
struct Hsv {
  float hue = 0, saturation = 0, value = 0;
};

OCTET_HOST_DEVICE inline Hsv hsv_of(const uint8_t* rgb) {
  const float r = rgb[0], g = rgb[1], b = rgb[2];
  const float value = std::max(r, std::max(g, b)), range = value - std::min(r, std::min(g, b));
  if (range == 0) return {0, 0, value};
  float hue = 4 + (r - g) / range;
  if (value == r)
    hue = (g - b) / range;
  else if (value == g)
    hue = 2 + (b - r) / range;
  return {hue, 255 * range / value, value};
}

/// Writes the RGB pixel; its hue may be -6 .. 12.
OCTET_HOST_DEVICE inline void write_rgb(const Hsv& pixel, uint8_t* rgb) {
  const float range = pixel.value * pixel.saturation / 255, hue = pixel.hue + (pixel.hue < 0 ? 6 : 0);
  const int sixth = static_cast<int>(hue);
  const float along = hue - static_cast<float>(sixth);
  const float values[] = {pixel.value, pixel.value - range * (1 - along), pixel.value - range * along,
                          pixel.value - range};  // highest, rising, falling, lowest
  constexpr int kOfSixth[6][3] = {{0, 1, 3}, {2, 0, 3}, {3, 0, 1}, {3, 2, 0}, {1, 3, 0}, {0, 3, 2}};
  for (int c = 0; c < 3; ++c) rgb[c] = static_cast<uint8_t>(values[kOfSixth[sixth % 6][c]] + 0.5f);
}

/// What is added to hue (in degrees), saturation and value (0..255).
struct ColourChange {
  int32_t hue = 0, saturation = 0, value = 0;
  OCTET_HOST_DEVICE bool none() const { return hue == 0 && saturation == 0 && value == 0; }
};

/// Changes an RGB pixel, or a grey one of one channel. Saturation and value stay within what they can be; grey pixels
/// have a value only.
template <int kChannels>
OCTET_HOST_DEVICE inline void change_colour(const ColourChange& by, uint8_t* pixel) {
  const auto changed = [](float value, int change) {
    return std::min(std::max(value + static_cast<float>(change), 0.0f), 255.0f);
  };
  if constexpr (kChannels == 1) {
    *pixel = static_cast<uint8_t>(changed(*pixel, by.value));
  } else {
    Hsv hsv = hsv_of(pixel);
    hsv.hue += static_cast<float>(by.hue) / 60;
    if (hsv.saturation > 0) hsv.saturation = changed(hsv.saturation, by.saturation);
    hsv.value = changed(hsv.value, by.value);
    write_rgb(hsv, pixel);
  }
}

}  // namespace octet::kernels
