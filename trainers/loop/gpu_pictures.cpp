// SPDX-License-Identifier: Apache-2.0
#include "trainers/loop/gpu_pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/operators/resample.h"
#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/data/picture_plan.h"
#include "src/train/model/threads.h"

namespace octet {
namespace {

static_assert(kernels::kResampleBits == kFilterBits);
using kernels::ResampleAxis;
using kernels::ResampledPicture;

size_t aligned(size_t bytes) { return (bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment; }

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

size_t count_of(const ResizeFilter& filter) { return filter.outputs() * (ResampleAxis::kHead + filter.taps); }

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

kernels::ResampleShape shape_of(const Transform& t, size_t batch) {
  kernels::ResampleShape shape{static_cast<int>(batch),      t.height, t.width,  t.channels,
                               t.order == ChannelOrder::bgr, {},       t.outside};
  std::copy_n(t.fill.begin(), std::min<size_t>(t.fill.size(), std::size(shape.fill)), shape.fill);
  return shape;
}

}  // namespace

std::string why_not_decoded(const RunData& data) {
  if (data.train_set->labels() != Labels::image)
    return fmt::format("data.labels: {} are made on the CPU; use cpu", name_in(kLabels, data.train_set->labels()));
  if (const std::string why = why_not_planned(data.train_transform); !why.empty()) return why + "; use cpu";
  if (const std::string why = why_no_nvjpeg(); !why.empty()) return why + ", or use cpu";
  return "";
}

GpuPictures::GpuPictures(const RunData& data, size_t most_bytes)
    : data_(data), most_bytes_(most_bytes), nvjpeg_(data.train_transform.channels, kLanes) {
  say("data.decode: gpu: " + nvjpeg_.describe());
}

void GpuPictures::make(Batch& batch, int lane, uint8_t* images, CudaStream stream,
                       const std::function<void()>& before_writing) {
  for (size_t first = 0; first < batch.plans.size();) {
    if (first > 0) {  // the part before is in the same memory
      lanes_[lane].made.record(stream);
      lanes_[lane].made.wait("making a part of a batch");
    }
    const size_t end = end_of_part(batch, first);
    make_part(batch, first, end, lane, images, stream, before_writing);
    first = end;
  }
  total_ += batch.plans.size();
  for (const PicturePlan& plan : batch.plans)
    if (plan.file.empty()) ++by_cpu_[plan.why_cpu];
}

size_t GpuPictures::end_of_part(const Batch& batch, size_t first) const {
  size_t end = first + 1, pixels = aligned(pixel_bytes(batch.plans[first].image));
  for (; end < batch.plans.size(); ++end) {
    pixels += aligned(pixel_bytes(batch.plans[end].image));
    if (pixels > most_bytes_) break;
  }
  return end;
}

void GpuPictures::make_part(Batch& batch, size_t first, size_t end, int lane_number, uint8_t* images, CudaStream stream,
                            const std::function<void()>& before_writing) {
  Lane& lane = lanes_[lane_number];
  size_t pixel_room = 0, filters = 0;
  for (size_t i = first; i < end; ++i) {
    const PicturePlan& plan = batch.plans[i];
    pixel_room += aligned(pixel_bytes(plan.image));
    filters += count_of(plan.rows) + count_of(plan.columns);
  }
  const size_t heads = aligned((end - first) * sizeof(ResampledPicture)), bytes = heads + filters * sizeof(int32_t);
  make_room(lane.plans, bytes);
  make_room(lane.device_plans, bytes, "plans of images");
  make_room(lane.pixels, pixel_room, "decoded images");

  auto* head = reinterpret_cast<ResampledPicture*>(lane.plans.data());
  auto* weights = reinterpret_cast<int32_t*>(lane.plans.data() + heads);
  std::vector<uint8_t*> pixels;
  size_t place = 0, offset = 0;
  for (size_t i = first; i < end; ++i) {
    const PicturePlan& plan = batch.plans[i];
    pixels.push_back(lane.pixels.data() + place);
    place += aligned(pixel_bytes(plan.image));
    ResampledPicture picture{.pixels = pixels.back(),
                             .stride = static_cast<int64_t>(plan.image.width) * plan.image.channels};
    picture.rows = put(plan.rows, weights, offset);
    picture.columns = put(plan.columns, weights, offset);
    for (size_t f = 0; f < plan.filled.size(); ++f) {
      const Rectangle& r = plan.filled[f];
      const int sides[] = {r.top, r.left, r.top + r.height, r.left + r.width};
      std::copy_n(sides, std::size(sides), picture.filled[f]);
    }
    head[i - first] = picture;
  }
  decode(batch, first, pixels, lane_number, stream);
  copy_to_device(lane.device_plans.data(), lane.plans.data(), bytes, stream);
  before_writing();
  const Transform& t = data_.train_transform;
  kernels::cuda_resample(shape_of(t, end - first),
                         {.pictures = reinterpret_cast<const ResampledPicture*>(lane.device_plans.data()),
                          .filters = reinterpret_cast<const int32_t*>(lane.device_plans.data() + heads),
                          .images = images + first * t.height * t.width * t.channels},
                         stream);
}

void GpuPictures::decode(Batch& batch, size_t first, const std::vector<uint8_t*>& pixels, int lane_number,
                         CudaStream stream) {
  Lane& lane = lanes_[lane_number];
  size_t bytes = 0;
  for (size_t i = 0; i < pixels.size(); ++i) bytes += aligned(batch.plans[first + i].file.size());
  make_room(lane.files, bytes);
  std::vector<EncodedJpeg> files;
  std::vector<size_t> owners;  // their places in the batch
  uint8_t* file = lane.files.data();
  for (size_t i = 0; i < pixels.size(); ++i) {
    const PicturePlan& plan = batch.plans[first + i];
    if (plan.file.empty()) continue;
    std::memcpy(file, plan.file.data(), plan.file.size());
    files.push_back({file, plan.file.size(), pixels[i], plan.image.height, plan.image.width});
    owners.push_back(first + i);
    file += aligned(plan.file.size());
  }
  const NvJpeg::Refused refused = nvjpeg_.decode(lane_number, files, stream);
  share_among_threads(static_cast<int64_t>(refused.files.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const size_t owner = owners[refused.files[static_cast<size_t>(i)]], index = batch.indices[owner];
      decode_by_cpu(batch.plans[owner], data_.train_transform.channels, data_.train_set->describe(index), refused.why);
    }
  });
  for (size_t i = 0; i < pixels.size(); ++i) {
    const std::vector<uint8_t>& decoded = batch.plans[first + i].image.pixels;
    if (!decoded.empty()) copy_to_device(pixels[i], decoded.data(), decoded.size(), stream);
  }
}

void GpuPictures::tell() {
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
