// SPDX-License-Identifier: Apache-2.0
#include "trainers/loop/gpu_plans.h"

#include <algorithm>

#include "kernels/operators/resample.h"

namespace octet {
namespace {

using kernels::PlacedPicture;
using kernels::PlacedTile;
using kernels::ResampleAxis;
using kernels::ResampledPicture;
static_assert(kernels::kResampleBits == kFilterBits);

/// Returns how many bytes a filter takes.
size_t bytes_of(const ResizeFilter& filter) {
  return filter.outputs() * (ResampleAxis::kHead + filter.taps) * sizeof(int32_t);
}

/// Writes a filter as the kernel reads it, at place `offset` of the filters.
ResampleAxis put(const ResizeFilter& filter, int32_t* filters, size_t& offset) {
  const ResampleAxis axis{static_cast<int64_t>(offset), filter.taps};
  for (size_t i = 0; i < filter.outputs(); ++i) {
    filters[offset++] = filter.first[i];
    filters[offset++] = filter.count[i];
    std::copy_n(filter.weights.begin() + static_cast<std::ptrdiff_t>(i * filter.taps), filter.taps, filters + offset);
    offset += static_cast<size_t>(filter.taps);
  }
  return axis;
}

int64_t row_bytes(const Image& image) { return static_cast<int64_t>(image.width) * image.channels; }

bool is_placed(const Batch& batch) { return !batch.placed.empty(); }

}  // namespace

std::vector<PlannedFile> files_of(Batch& batch, size_t first, size_t end) {
  std::vector<PlannedFile> files;
  for (size_t i = first; i < end; ++i) {
    if (!is_placed(batch)) {
      files.push_back({&batch.plans[i], batch.indices[i]});
    } else {
      for (TilePlan& tile : batch.placed[i].tiles) files.push_back({&tile, tile.index});
    }
  }
  return files;
}

GpuPlans::GpuPlans(const Batch& batch, size_t first, size_t end) : batch_(batch), first_(first), end_(end) {
  size_t tiles = 0, filters = 0;
  for (size_t i = first; i < end; ++i) {
    if (!is_placed(batch)) {
      filters += bytes_of(batch.plans[i].rows) + bytes_of(batch.plans[i].columns);
      continue;
    }
    for (const TilePlan& tile : batch.placed[i].tiles) filters += bytes_of(tile.rows) + bytes_of(tile.columns);
    tiles += batch.placed[i].tiles.size();
  }
  tiles_ = aligned((end - first) * (is_placed(batch) ? sizeof(PlacedPicture) : sizeof(ResampledPicture)));
  filters_ = tiles_ + aligned(tiles * sizeof(PlacedTile));
  bytes_ = filters_ + filters;
}

void GpuPlans::write(const std::vector<uint8_t*>& pixels, uint8_t* out) const {
  is_placed(batch_) ? write_placed(pixels, out) : write_crops(pixels, out);
}

void GpuPlans::write_crops(const std::vector<uint8_t*>& pixels, uint8_t* out) const {
  auto* pictures = reinterpret_cast<ResampledPicture*>(out);
  auto* filters = reinterpret_cast<int32_t*>(out + filters_);
  size_t offset = 0;
  for (size_t i = first_; i < end_; ++i) {
    const PicturePlan& plan = batch_.plans[i];
    ResampledPicture picture{.pixels = pixels[i - first_], .stride = row_bytes(plan.image)};
    picture.rows = put(plan.rows, filters, offset);
    picture.columns = put(plan.columns, filters, offset);
    for (size_t f = 0; f < plan.filled.size(); ++f) {
      const Rectangle& r = plan.filled[f];
      const int sides[] = {r.top, r.left, r.top + r.height, r.left + r.width};
      std::copy_n(sides, std::size(sides), picture.filled[f]);
    }
    pictures[i - first_] = picture;
  }
}

void GpuPlans::write_placed(const std::vector<uint8_t*>& pixels, uint8_t* out) const {
  auto* pictures = reinterpret_cast<PlacedPicture*>(out);
  auto* tiles = reinterpret_cast<PlacedTile*>(out + tiles_);
  auto* filters = reinterpret_cast<int32_t*>(out + filters_);
  size_t offset = 0;
  int32_t number = 0;
  for (size_t i = first_; i < end_; ++i) {
    const PlacedPlan& plan = batch_.placed[i];
    const auto count = static_cast<int32_t>(plan.tiles.size());
    pictures[i - first_] = {number, number + static_cast<int32_t>(plan.mixed), number + count, plan.two ? 1 : 0};
    for (const TilePlan& part : plan.tiles) {
      PlacedTile tile = part.tile;
      tile.pixels = pixels[static_cast<size_t>(number)];
      tile.stride = row_bytes(part.image);
      tile.rows = put(part.rows, filters, offset);
      tile.columns = put(part.columns, filters, offset);
      tiles[number++] = tile;
    }
  }
}

uint8_t* GpuPlans::own_images(const Transform& t, uint8_t* images) const {
  return images + first_ * static_cast<size_t>(batch_.input.height) * batch_.input.width * t.channels;
}

kernels::PlaceBatch GpuPlans::placed(const Transform& t, const uint8_t* plans, uint8_t* images) const {
  return {.pictures = reinterpret_cast<const PlacedPicture*>(plans),
          .tiles = reinterpret_cast<const PlacedTile*>(plans + tiles_),
          .filters = reinterpret_cast<const int32_t*>(plans + filters_),
          .images = own_images(t, images)};
}

void GpuPlans::enqueue(const Transform& t, const uint8_t* device_plans, uint8_t* images, CudaStream stream) const {
  const int count = static_cast<int>(end_ - first_), height = batch_.input.height, width = batch_.input.width;
  const bool reversed = t.order == ChannelOrder::bgr;
  if (is_placed(batch_)) {
    kernels::cuda_place({count, height, width, t.channels, reversed, kLetterboxGrey}, placed(t, device_plans, images),
                        stream);
    return;
  }
  kernels::ResampleShape shape{count, height, width, t.channels, reversed, {}, t.outside};
  std::copy_n(t.fill.begin(), std::min<size_t>(t.fill.size(), std::size(shape.fill)), shape.fill);
  kernels::cuda_resample(shape,
                         {.pictures = reinterpret_cast<const ResampledPicture*>(device_plans),
                          .filters = reinterpret_cast<const int32_t*>(device_plans + filters_),
                          .images = own_images(t, images)},
                         stream);
}

}  // namespace octet
