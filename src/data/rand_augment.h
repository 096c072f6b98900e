// SPDX-License-Identifier: Apache-2.0
// RandAugment (Cubuk et al., arXiv 1909.13719), with the operations and magnitudes of
// torchvision.transforms.RandAugment.
#pragma once

#include <array>
#include <string_view>

#include "src/base/random.h"
#include "src/data/colours.h"

namespace octet {

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
