// SPDX-License-Identifier: Apache-2.0
#include "trainers/loop/gpu_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/training/batches.h"
#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/data/image_plan.h"
#include "src/train/model/threads.h"

namespace octet {
namespace {

using kernels::PlacedImage;
using kernels::PlacedTile;
using kernels::ResampleAxis;
using kernels::ResampledImage;
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
  tiles_ = aligned((end - first) * (is_placed(batch) ? sizeof(PlacedImage) : sizeof(ResampledImage)));
  filters_ = tiles_ + aligned(tiles * sizeof(PlacedTile));
  bytes_ = filters_ + filters;
}

void GpuPlans::write(const std::vector<uint8_t*>& pixels, uint8_t* out) const {
  is_placed(batch_) ? write_placed(pixels, out) : write_crops(pixels, out);
}

void GpuPlans::write_crops(const std::vector<uint8_t*>& pixels, uint8_t* out) const {
  auto* images = reinterpret_cast<ResampledImage*>(out);
  auto* filters = reinterpret_cast<int32_t*>(out + filters_);
  size_t offset = 0;
  for (size_t i = first_; i < end_; ++i) {
    const CropPlan& plan = batch_.plans[i];
    ResampledImage image{.pixels = pixels[i - first_], .stride = row_bytes(plan.image)};
    image.rows = put(plan.rows, filters, offset);
    image.columns = put(plan.columns, filters, offset);
    for (size_t f = 0; f < plan.filled.size(); ++f) {
      const Rectangle& r = plan.filled[f];
      const int sides[] = {r.top, r.left, r.top + r.height, r.left + r.width};
      std::copy_n(sides, std::size(sides), image.filled[f]);
    }
    images[i - first_] = image;
  }
}

void GpuPlans::write_placed(const std::vector<uint8_t*>& pixels, uint8_t* out) const {
  auto* images = reinterpret_cast<PlacedImage*>(out);
  auto* tiles = reinterpret_cast<PlacedTile*>(out + tiles_);
  auto* filters = reinterpret_cast<int32_t*>(out + filters_);
  size_t offset = 0;
  int32_t number = 0;
  for (size_t i = first_; i < end_; ++i) {
    const PlacedPlan& plan = batch_.placed[i];
    const auto count = static_cast<int32_t>(plan.tiles.size());
    images[i - first_] = {number, number + static_cast<int32_t>(plan.mixed), number + count, plan.two ? 1 : 0};
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
  return {.plans = reinterpret_cast<const PlacedImage*>(plans),
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
                         {.plans = reinterpret_cast<const ResampledImage*>(device_plans),
                          .filters = reinterpret_cast<const int32_t*>(device_plans + filters_),
                          .images = own_images(t, images)},
                         stream);
}

namespace {

size_t pixel_bytes(const Image& image) { return static_cast<size_t>(image.height) * image.width * image.channels; }

/// Makes room for `bytes`, and for somewhat more so that the next batches fit too. What it held is lost.
void make_room(DeviceBuffer& buffer, size_t bytes, const char* what) try {
  if (buffer.bytes() < bytes) buffer = {}, buffer = DeviceBuffer(bytes + bytes / 4, what);
} catch (const OutOfGpuMemory& error) {
  throw promise_error(fmt::format("data.decode: gpu: {}; set data.decode=cpu, or a smaller batch_size", error.what()));
}
void make_room(PinnedBuffer& buffer, size_t bytes) {
  if (buffer.bytes() < bytes) buffer = {}, buffer = PinnedBuffer(bytes + bytes / 4);
}

}  // namespace

std::string why_not_decoded(const RunData& data) {
  if (const std::string why = why_not_planned(data.train_transform); !why.empty()) return why + "; use cpu";
  if (const std::string why = why_no_nvjpeg(); !why.empty()) return why + ", or use cpu";
  return "";
}

GpuImages::GpuImages(const RunData& data, size_t most_bytes)
    : data_(data), most_bytes_(most_bytes), nvjpeg_(data.train_transform.channels, kLanes) {
  say("data.decode: gpu: " + nvjpeg_.describe());
}

void GpuImages::make(Batch& batch, int lane, uint8_t* images, CudaStream stream,
                     const std::function<void()>& before_writing) {
  const auto count = static_cast<size_t>(batch.size);
  for (size_t first = 0; first < count;) {
    if (first > 0) {  // the part before is in the same memory
      lanes_[lane].made.record(stream);
      lanes_[lane].made.wait("making a part of a batch");
    }
    const size_t end = end_of_part(batch, first);
    make_part(batch, first, end, lane, images, stream, before_writing);
    first = end;
  }
  for (const PlannedFile& file : files_of(batch, 0, count)) {
    ++total_;
    if (file.image_file->file.empty()) ++by_cpu_[file.image_file->why_cpu];
  }
}

size_t GpuImages::end_of_part(Batch& batch, size_t first) const {
  size_t end = first, pixels = 0;
  for (; end < static_cast<size_t>(batch.size); ++end) {
    for (const PlannedFile& file : files_of(batch, end, end + 1))
      pixels += aligned(pixel_bytes(file.image_file->image));
    if (end > first && pixels > most_bytes_) break;
  }
  return end;
}

void GpuImages::make_part(Batch& batch, size_t first, size_t end, int lane_number, uint8_t* images, CudaStream stream,
                          const std::function<void()>& before_writing) {
  Lane& lane = lanes_[lane_number];
  const std::vector<PlannedFile> files = files_of(batch, first, end);
  size_t pixel_room = 0;
  for (const PlannedFile& file : files) pixel_room += aligned(pixel_bytes(file.image_file->image));
  const GpuPlans plans(batch, first, end);
  make_room(lane.plans, plans.bytes());
  make_room(lane.device_plans, plans.bytes(), "plans of images");
  make_room(lane.pixels, pixel_room, "decoded images");

  std::vector<uint8_t*> pixels;
  size_t place = 0;
  for (const PlannedFile& file : files) {
    pixels.push_back(lane.pixels.data() + place);
    place += aligned(pixel_bytes(file.image_file->image));
  }
  plans.write(pixels, lane.plans.data());
  decode(files, pixels, lane_number, stream);
  copy_to_device(lane.device_plans.data(), lane.plans.data(), plans.bytes(), stream);
  before_writing();
  plans.enqueue(data_.train_transform, lane.device_plans.data(), images, stream);
}

void GpuImages::decode(const std::vector<PlannedFile>& files, const std::vector<uint8_t*>& pixels, int lane_number,
                       CudaStream stream) {
  Lane& lane = lanes_[lane_number];
  size_t bytes = 0;
  for (const PlannedFile& file : files) bytes += aligned(file.image_file->file.size());
  make_room(lane.files, bytes);
  std::vector<EncodedJpeg> encoded;
  std::vector<size_t> owners;  // their places in `files`
  uint8_t* copy = lane.files.data();
  for (size_t i = 0; i < files.size(); ++i) {
    const ImageFile& image_file = *files[i].image_file;
    if (image_file.file.empty()) continue;
    std::memcpy(copy, image_file.file.data(), image_file.file.size());
    encoded.push_back({copy, image_file.file.size(), pixels[i], image_file.image.height, image_file.image.width});
    owners.push_back(i);
    copy += aligned(image_file.file.size());
  }
  const NvJpeg::Refused refused = nvjpeg_.decode(lane_number, encoded, stream);
  share_among_threads(static_cast<int64_t>(refused.files.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const PlannedFile& file = files[owners[refused.files[static_cast<size_t>(i)]]];
      decode_by_cpu(*file.image_file, data_.train_transform.channels, data_.train_set->describe(file.index),
                    refused.why);
    }
  });
  for (size_t i = 0; i < files.size(); ++i) {
    const std::vector<uint8_t>& decoded = files[i].image_file->image.pixels;
    if (!decoded.empty()) copy_to_device(pixels[i], decoded.data(), decoded.size(), stream);
  }
}

void GpuImages::tell() {
  if (told_ || by_cpu_.empty()) return;
  told_ = true;
  size_t images = 0;
  std::string kinds;
  for (const auto& [why, count] : by_cpu_) {
    images += count;
    kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", count, why);
  }
  say(fmt::format("note: data.decode: gpu: the CPU decoded {} of {} images: {}", images, total_, kinds));
}

}  // namespace octet
