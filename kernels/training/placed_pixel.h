// SPDX-License-Identifier: Apache-2.0
// One pixel of a batch of placed images: the arithmetic of cuda_place(), which tests compare with place() on the CPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/training/batches.h"

namespace octet::kernels {

template <int kChannels>
struct PixelOf {
  uint8_t values[kChannels];
};

/// Returns the mean of the four pixels whose centres are nearest to (x, y) from an image's corner, weighted by how near
/// they are. at(row, column) returns a pixel, by the nearest row and column inside the image.
template <int kChannels, class At>
OCTET_HOST_DEVICE inline PixelOf<kChannels> mean_of_nearest(double x, double y, const At& at) {
  const double left = std::floor(x - 0.5), top = std::floor(y - 0.5);
  const auto right = static_cast<float>(x - 0.5 - left), down = static_cast<float>(y - 0.5 - top);
  const int row = static_cast<int>(top), column = static_cast<int>(left);
  const PixelOf<kChannels> a = at(row, column), b = at(row, column + 1), c = at(row + 1, column),
                           d = at(row + 1, column + 1);
  const auto between = [](float from, float to, float share) { return from + (to - from) * share; };
  PixelOf<kChannels> mean;
  for (int i = 0; i < kChannels; ++i) {
    const float above = between(a.values[i], b.values[i], right), below = between(c.values[i], d.values[i], right);
    mean.values[i] = static_cast<uint8_t>(between(above, below, down) + 0.5f);
  }
  return mean;
}

/// Returns the resized and recoloured pixel in that row and column of `kept`: a sum of weights along each row of the
/// decoded image, rounded to 8 bits, summed likewise along the column.
template <int kChannels>
OCTET_HOST_DEVICE inline PixelOf<kChannels> resized_pixel(const PlacedTile& tile, const int32_t* filters, int row,
                                                          int column) {
  constexpr int kHead = ResampleAxis::kHead, kHalf = 1 << (kResampleBits - 1);
  const auto to_byte = [](int sum) { return std::min(std::max(sum >> kResampleBits, 0), 255); };
  const int32_t* down = filters + tile.rows.offset + static_cast<int64_t>(row) * (kHead + tile.rows.taps);
  const int32_t* across = filters + tile.columns.offset + static_cast<int64_t>(column) * (kHead + tile.columns.taps);
  const uint8_t* line = tile.pixels + down[0] * tile.stride + static_cast<int64_t>(across[0]) * kChannels;
  int sums[kChannels];
  for (int c = 0; c < kChannels; ++c) sums[c] = kHalf;
  for (int k = 0; k < down[1]; ++k, line += tile.stride) {
    int values[kChannels];
    for (int c = 0; c < kChannels; ++c) values[c] = kHalf;
    for (int j = 0; j < across[1]; ++j)
      for (int c = 0; c < kChannels; ++c) values[c] += across[kHead + j] * line[j * kChannels + c];
    for (int c = 0; c < kChannels; ++c) sums[c] += down[kHead + k] * to_byte(values[c]);
  }
  PixelOf<kChannels> pixel;
  for (int c = 0; c < kChannels; ++c) pixel.values[c] = static_cast<uint8_t>(to_byte(sums[c]));
  if (!tile.colours.none()) change_colour<kChannels>(tile.colours, pixel.values);
  return pixel;
}

/// Returns the pixel in row y and column x of what tiles [first, end) show, the last that is there.
template <int kChannels>
OCTET_HOST_DEVICE inline PixelOf<kChannels> shown_pixel(const PlaceShape& shape, const PlaceBatch& batch, int first,
                                                        int end, int y, int x) {
  for (int i = end - 1; i >= first; --i) {
    const PlacedTile& tile = batch.tiles[i];
    const Bounds& kept = tile.kept;
    if (!tile.reached.hold(y, x)) continue;
    if (tile.turned == 0) return resized_pixel<kChannels>(tile, batch.filters, y - kept.top, x - kept.left);
    const double from_x = tile.back.x_of(x + 0.5, y + 0.5), from_y = tile.back.y_of(x + 0.5, y + 0.5);
    if (!tile.seen.hold(from_y, from_x)) continue;
    const auto at = [&](int row, int column) {
      const int inside_y = std::min(std::max(row + tile.top, kept.top), kept.bottom - 1);
      const int inside_x = std::min(std::max(column + tile.left, kept.left), kept.right - 1);
      return resized_pixel<kChannels>(tile, batch.filters, inside_y - kept.top, inside_x - kept.left);
    };
    return mean_of_nearest<kChannels>(from_x - tile.left, from_y - tile.top, at);
  }
  PixelOf<kChannels> ground;
  for (int c = 0; c < kChannels; ++c) ground.values[c] = shape.ground;
  return ground;
}

/// Writes the pixel in row y and column x of image n of the batch.
template <int kChannels>
OCTET_HOST_DEVICE inline void write_placed_pixel(const PlaceShape& shape, const PlaceBatch& batch, int n, int y,
                                                 int x) {
  const PlacedImage image = batch.plans[n];
  PixelOf<kChannels> pixel = shown_pixel<kChannels>(shape, batch, image.first, image.mixed, y, x);
  if (image.two != 0) {
    const PixelOf<kChannels> other = shown_pixel<kChannels>(shape, batch, image.mixed, image.end, y, x);
    for (int c = 0; c < kChannels; ++c)
      pixel.values[c] = static_cast<uint8_t>((pixel.values[c] + other.values[c] + 1) / 2);
  }
  uint8_t* out = batch.images + ((static_cast<int64_t>(n) * shape.height + y) * shape.width + x) * kChannels;
  for (int c = 0; c < kChannels; ++c) out[shape.reversed ? kChannels - 1 - c : c] = pixel.values[c];
}

}  // namespace octet::kernels
