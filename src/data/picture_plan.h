// SPDX-License-Identifier: Apache-2.0
// What a training image needs so that a GPU can decode it and make its pixels: the bytes of its file, and of which of
// its pixels each pixel of the network's input is made. The random numbers are those of training_pixels().
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "src/data/dataset.h"
#include "src/data/resize_filter.h"
#include "src/data/transform.h"

namespace octet {

struct PicturePlan {
  std::string file;                   ///< a JPEG that a GPU decodes; empty: `image` has the pixels, decoded by the CPU
  Image image;                        ///< its size as it is read and, without `file`, its pixels
  std::string why_cpu;                ///< without `file`: "progressive", "no JPEG" and the like
  ResizeFilter rows, columns;         ///< of the input; a count of 0: outside the image (Transform::outside)
  std::array<Rectangle, 2> filled{};  ///< parts of the input that become Transform::fill: cutout and erasing
};

/// Returns why training_pixels() cannot be planned for this transform, naming the recipe's keys, or "".
std::string why_not_planned(const Transform& transform);

/// Reads the image and draws what training_pixels() draws, with why_not_planned() "". Throws Error(data) as it and
/// Dataset::read() do, also for a JPEG whose header is damaged.
PicturePlan plan_picture(const Dataset& dataset, size_t index, const Transform& transform, Random& random);

/// Decodes the file of a plan by the CPU after all, as Dataset::read() does, and notes why.
void decode_by_cpu(PicturePlan& plan, int channels, const std::string& name, const std::string& why);

}  // namespace octet
