// SPDX-License-Identifier: Apache-2.0
// How an image file becomes the input of a network: a part of every checkpoint, so that whoever runs it prepares images
// as they were prepared when it was trained or calibrated.
#pragma once

#include <array>
#include <vector>

#include "src/base/names.h"

namespace octet {

/// How an image gets the height and width of the network's input.
enum class Fit {
  crop,              ///< its centre is cropped, after `resize` if there is one
  stretch,           ///< resized to the input's height and width, whatever its aspect ratio
  letterbox,         ///< resized within the input with its aspect ratio, in the middle; the rest is kLetterboxGrey
  letterbox_corner,  ///< the same, in the upper left corner, as YOLOX has it
  tensor,            ///< there are no images: the input is ready tensors, and pixels are the bytes of its codes
};
inline constexpr std::array<Named<Fit>, 5> kFits = {{{Fit::crop, "crop"},
                                                     {Fit::stretch, "stretch"},
                                                     {Fit::letterbox, "letterbox"},
                                                     {Fit::letterbox_corner, "letterbox_corner"},
                                                     {Fit::tensor, "tensor"}}};

/// The value of the pixels around a letterboxed image, in every channel.
inline constexpr unsigned char kLetterboxGrey = 114;

/// The order of a colour image's channels in the network's input. OpenCV reads images as bgr.
enum class ChannelOrder { rgb, bgr };
inline constexpr std::array<Named<ChannelOrder>, 2> kChannelOrders = {
    {{ChannelOrder::rgb, "rgb"}, {ChannelOrder::bgr, "bgr"}}};

struct Preprocessing {
  int resize = 0;                 ///< fit crop: the shorter side becomes this many pixels (bilinear); 0: no resize
  int crop = 0;                   ///< fit crop: the centre is cropped to crop x crop pixels; 0: to the input's size
  bool exif_orientation = false;  ///< first rotates or mirrors images as their EXIF data says
  bool even_margin = false;       ///< half of an odd margin around the crop is rounded to even, else down
  Fit fit = Fit::crop;
  ChannelOrder order = ChannelOrder::rgb;
  std::vector<float> mean, std;  ///< one for each channel of the input, on the 0..1 scale
  bool operator==(const Preprocessing&) const = default;
};

}  // namespace octet
