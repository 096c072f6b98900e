// SPDX-License-Identifier: Apache-2.0
// Colours of images that change at random in training. RandAugment (Cubuk et al., arXiv 1909.13719), with the
// operations and magnitudes of torchvision.transforms.RandAugment.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "src/base/random.h"

namespace octet {

/// Pixels of an image in memory, interleaved.
struct Pixels {
  uint8_t* values = nullptr;
  int height = 0, width = 0, channels = 0;  ///< channels 1 or 3
  size_t count() const { return static_cast<size_t>(height) * width; }
  std::span<uint8_t> all() const { return {values, count() * channels}; }
};

/// Returns how light a pixel is, 0..255: ITU-R BT.601.
float lightness(const uint8_t* pixel, int channels);

/// Each changes all pixels to factor * pixel + (1 - factor) * what the field says; 1 changes nothing, 0 leaves that.
void change_brightness(const Pixels& pixels, float factor);  ///< black
void change_contrast(const Pixels& pixels, float factor);    ///< the mean lightness of the image
void change_saturation(const Pixels& pixels, float factor);  ///< the pixel's own lightness
void turn_hue(const Pixels& pixels, float by);               ///< by that share of the circle, -0.5 .. 0.5

/// By how much brightness, contrast, saturation and hue may change (torchvision.transforms.ColorJitter).
struct ColourJitter {
  double brightness = 0, contrast = 0, saturation = 0, hue = 0;
  bool any() const { return brightness > 0 || contrast > 0 || saturation > 0 || hue > 0; }
};

/// Changes the four in random order: factors between 1 - x and 1 + x, the hue by a share between -x and x of the
/// circle.
void jitter_colours(const Pixels& pixels, const ColourJitter& jitter, Random& random);

/// An operation on all pixels of an image. strength: 0 .. 1 of what it may do at most, or less than 0 for an operation
/// that may go both ways.
struct RandomOperation {
  std::string_view name;
  bool both_ways = false;
  void (*apply)(const Pixels& pixels, double strength) = nullptr;
};

/// Identity, shear by up to 0.3 and translation by up to 150 / 331 along both axes, rotation by up to 30 degrees (all
/// to the nearest pixel, black from outside); brightness, saturation, contrast and sharpness by a factor of 1 - 0.9 to
/// 1 + 0.9; posterize to 4 bits, solarize above 255 to 0; autocontrast, equalize.
extern const std::array<RandomOperation, 14> kRandomOperations;

/// Applies `count` of the operations, drawn anew each time, with magnitude (0 .. 30) / 30 of their most.
void rand_augment(const Pixels& pixels, int count, int magnitude, Random& random);

}  // namespace octet
