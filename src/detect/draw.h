// SPDX-License-Identifier: Apache-2.0
// Pictures of what a detector or a network of segmentation found, for people.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "src/data/boxes.h"
#include "src/data/dataset.h"

namespace octet {

/// Returns the image, in colour, with a frame around each box and the class and score above it; a class has one colour.
/// class_names: by class; without one it is called by its number. Lines and letters grow with the image.
Image draw_boxes(const Image& image, std::span<const Detection> detections, std::span<const std::string> class_names);

/// Returns the image, in colour, half under the colours of its pixels' classes, whose names stand in its upper left
/// corner in the order of their shares. mask: the class of each pixel; what is kUnlabelled stays as it is.
Image draw_classes(const Image& image, const Image& mask, std::span<const std::string> class_names);

/// The letters on such a picture: 5 x 7 pixels each.
inline constexpr int kLetterWidth = 5, kLetterHeight = 7;

/// Returns the rows of a letter from the top; bit 4 is the pixel on the left. There are capitals, which small letters
/// are shown as, digits and some signs; other characters are a frame.
std::array<uint8_t, kLetterHeight> letter(char character);

}  // namespace octet
