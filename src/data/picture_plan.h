// SPDX-License-Identifier: Apache-2.0
// What a training image needs so that a GPU can decode it and make its pixels, here for crops: the bytes of its file,
// and of which of its pixels each pixel of the network's input is made. The random numbers are those of
// training_pixels().
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "src/data/dataset.h"
#include "src/data/resize_filter.h"
#include "src/data/transform.h"

namespace octet {

/// An image that a GPU decodes, or that the CPU decoded for it.
struct PictureFile {
  std::string file;     ///< a JPEG that a GPU decodes; empty: `image` has the pixels, decoded by the CPU
  Image image;          ///< its size as it is read and, without `file`, its pixels
  std::string why_cpu;  ///< without `file`: "progressive", "no JPEG" and the like
};

/// Reads the file's bytes if a GPU decodes them, else its pixels. Throws Error(data) as Dataset::read() does, also for
/// a JPEG whose header is damaged.
PictureFile read_picture_file(const Dataset& dataset, size_t index);

struct PicturePlan : PictureFile {
  ResizeFilter rows, columns;         ///< of the input; a count of 0: outside the image (Transform::outside)
  std::array<Rectangle, 2> filled{};  ///< parts of the input that become Transform::fill: cutout and erasing
};

/// Returns why training_pixels() cannot be planned for this transform, naming the recipe's keys, or "".
std::string why_not_planned(const Transform& transform);

/// Reads the image and draws what training_pixels() draws, with Fit::crop and why_not_planned() "". Throws Error(data)
/// as it and read_picture_file() do.
PicturePlan plan_picture(const Dataset& dataset, size_t index, const Transform& transform, Random& random);

/// Returns the filter of an axis of the network's input: `wanted` places of a filter's, from `start` on, which may
/// reach over its ends; mirrored; over inputs that begin at `offset`.
ResizeFilter part_of(const ResizeFilter& whole, int start, int wanted, bool mirrored, int offset);

/// Decodes a file by the CPU after all, as Dataset::read() does, and notes why.
void decode_by_cpu(PictureFile& picture, int channels, const std::string& name, const std::string& why);

}  // namespace octet
