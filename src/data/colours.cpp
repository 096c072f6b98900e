// SPDX-License-Identifier: Apache-2.0
#include "src/data/colours.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/training/hsv.h"
#include "src/data/place.h"

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
    kernels::Hsv hsv = kernels::hsv_of(pixel);
    hsv.hue += 6 * by;
    kernels::write_rgb(hsv, pixel);
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

namespace {

constexpr double kMostShear = 0.3, kMostShift = 150.0 / 331, kMostDegrees = 30, kMostFactor = 0.9;
constexpr int kMagnitudes = 30;
constexpr int kFewestBits = 4;

/// Moves every pixel's colour to where `back` says that it comes from, by its centre; black from outside.
template <class Back>
void move_pixels(const Pixels& pixels, const Back& back) {
  const std::vector<uint8_t> from(pixels.all().begin(), pixels.all().end());
  uint8_t* out = pixels.values;
  for (int y = 0; y < pixels.height; ++y)
    for (int x = 0; x < pixels.width; ++x, out += pixels.channels) {
      const Point at = back(Point{x + 0.5, y + 0.5});
      const double row = std::floor(at.y), column = std::floor(at.x);
      const bool inside = row >= 0 && row < pixels.height && column >= 0 && column < pixels.width;
      for (int c = 0; c < pixels.channels; ++c)
        out[c] = inside ? from[(static_cast<size_t>(row) * pixels.width + static_cast<size_t>(column)) *
                                   static_cast<size_t>(pixels.channels) +
                               static_cast<size_t>(c)]
                        : 0;
    }
}

void shear_along_x(const Pixels& pixels, double strength) {
  move_pixels(pixels, [&](const Point& p) { return Point{p.x - kMostShear * strength * p.y, p.y}; });
}

void shear_along_y(const Pixels& pixels, double strength) {
  move_pixels(pixels, [&](const Point& p) { return Point{p.x, p.y - kMostShear * strength * p.x}; });
}

void shift_along_x(const Pixels& pixels, double strength) {
  const double by = std::trunc(kMostShift * pixels.width * strength);
  move_pixels(pixels, [&](const Point& p) { return Point{p.x - by, p.y}; });
}

void shift_along_y(const Pixels& pixels, double strength) {
  const double by = std::trunc(kMostShift * pixels.height * strength);
  move_pixels(pixels, [&](const Point& p) { return Point{p.x, p.y - by}; });
}

void rotate(const Pixels& pixels, double strength) {
  const double angle = kMostDegrees * strength * std::numbers::pi / 180, c = std::cos(angle), s = std::sin(angle);
  const Turn turn{c, -s, s, c, {pixels.width / 2.0, pixels.height / 2.0}};
  move_pixels(pixels, turn.inverse());
}

float factor_of(double strength) { return static_cast<float>(1 + kMostFactor * strength); }

/// Away from, or towards, the mean of nine pixels of which the middle one counts five times. Pixels at the border stay.
void change_sharpness(const Pixels& pixels, double strength) {
  constexpr float kMiddle = 5, kAll = 13;
  const std::vector<uint8_t> from(pixels.all().begin(), pixels.all().end());
  const size_t step = static_cast<size_t>(pixels.channels), row = step * static_cast<size_t>(pixels.width);
  const float factor = factor_of(strength);
  for (int y = 1; y + 1 < pixels.height; ++y)
    for (size_t i = y * row + step; i < (y + 1) * row - step; ++i) {
      float sum = (kMiddle - 1) * from[i];
      for (const size_t line : {i - row, i, i + row}) sum += from[line - step] + from[line] + from[line + step];
      const float value = factor * from[i] + (1 - factor) * sum / kAll;
      pixels.values[i] = static_cast<uint8_t>(std::clamp(value, 0.0f, 255.0f) + 0.5f);
    }
}

void posterize(const Pixels& pixels, double strength) {
  const long lost = std::lround((8 - kFewestBits) * strength);
  for (uint8_t& value : pixels.all()) value = static_cast<uint8_t>(value >> lost << lost);
}

void solarize(const Pixels& pixels, double strength) {
  const double from = 255 * (1 - strength);
  for (uint8_t& value : pixels.all())
    if (value >= from) value = static_cast<uint8_t>(255 - value);
}

/// Replaces the values of each channel by those of a table of 256, which make_table(channel's counts) returns.
template <class MakeTable>
void replace_by_channel(const Pixels& pixels, const MakeTable& make_table) {
  const auto step = static_cast<size_t>(pixels.channels);
  for (size_t c = 0; c < step; ++c) {
    std::array<long, 256> counts{};
    for (size_t i = c; i < pixels.all().size(); i += step) ++counts[pixels.values[i]];
    const std::array<uint8_t, 256> table = make_table(counts);
    for (size_t i = c; i < pixels.all().size(); i += step) pixels.values[i] = table[pixels.values[i]];
  }
}

std::array<uint8_t, 256> unchanged() {
  std::array<uint8_t, 256> table{};
  for (int v = 0; v < 256; ++v) table[v] = static_cast<uint8_t>(v);
  return table;
}

/// The darkest value of a channel becomes 0, the lightest 255.
void stretch_contrast(const Pixels& pixels, double) {
  replace_by_channel(pixels, [](const std::array<long, 256>& counts) {
    std::array<uint8_t, 256> table = unchanged();
    int low = 0, high = 255;
    while (counts[low] == 0) ++low;
    while (counts[high] == 0) --high;
    for (int v = low; low < high && v <= high; ++v)
      table[v] = static_cast<uint8_t>(std::lround(255.0 * (v - low) / (high - low)));
    return table;
  });
}

/// Each value of a channel becomes the share of the values below it.
void equalize_values(const Pixels& pixels, double) {
  replace_by_channel(pixels, [&](const std::array<long, 256>& counts) {
    std::array<uint8_t, 256> table = unchanged();
    int high = 255;
    while (counts[high] == 0) --high;
    const long step = (static_cast<long>(pixels.count()) - counts[high]) / 255;
    long below = 0;
    for (int v = 0; step > 0 && v < 256; below += counts[v++])
      table[v] = static_cast<uint8_t>(std::min(255L, (below + step / 2) / step));
    return table;
  });
}

}  // namespace

const std::array<RandomOperation, 14> kRandomOperations = {{
    {"identity", false, [](const Pixels&, double) {}},
    {"shear_x", true, shear_along_x},
    {"shear_y", true, shear_along_y},
    {"translate_x", true, shift_along_x},
    {"translate_y", true, shift_along_y},
    {"rotate", true, rotate},
    {"brightness", true, [](const Pixels& pixels, double s) { change_brightness(pixels, factor_of(s)); }},
    {"color", true, [](const Pixels& pixels, double s) { change_saturation(pixels, factor_of(s)); }},
    {"contrast", true, [](const Pixels& pixels, double s) { change_contrast(pixels, factor_of(s)); }},
    {"sharpness", true, change_sharpness},
    {"posterize", false, posterize},
    {"solarize", false, solarize},
    {"autocontrast", false, stretch_contrast},
    {"equalize", false, equalize_values},
}};

void rand_augment(const Pixels& pixels, int count, int magnitude, Random& random) {
  for (int i = 0; i < count; ++i) {
    const RandomOperation& operation = kRandomOperations[random.below(kRandomOperations.size())];
    const bool other_way = random.below(2) == 1;
    const double strength = static_cast<double>(magnitude) / kMagnitudes;
    operation.apply(pixels, operation.both_ways && other_way ? -strength : strength);
  }
}

}  // namespace octet
