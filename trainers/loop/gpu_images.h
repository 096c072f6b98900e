// SPDX-License-Identifier: Apache-2.0
// data.decode: gpu. Files of images become batches of pixels on the GPU: nvJPEG decodes them, or the CPU those that it
// does not, and one kernel makes of them what the loader makes on the CPU: crops, or images placed as a whole, in
// mosaics and mixed. The kernel reads plans of the images (src/data/image_plan.h), written into one piece of memory,
// which is copied to the GPU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/core/cuda.h"
#include "kernels/training/batches.h"
#include "src/cuda/memory.h"
#include "src/cuda/nvjpeg.h"
#include "src/cuda/stream.h"
#include "src/data/loader.h"
#include "src/data/transform.h"
#include "src/recipe/run.h"

namespace octet {

/// Returns why data.decode: gpu is not possible for this data, transform and machine, with the cure, or "".
std::string why_not_decoded(const RunData& data);

/// Returns the bytes that pieces of memory are apart which take `bytes` each.
inline size_t aligned(size_t bytes) { return (bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment; }

/// An image file of a batch, one of several where images are mosaics or mixed.
struct PlannedFile {
  ImageFile* image_file = nullptr;
  size_t index = 0;  ///< into the data set
};

/// Returns the files of images [first, end) of a planned batch, in the order of their plans.
std::vector<PlannedFile> files_of(Batch& batch, size_t first, size_t end);

/// The plans of a batch's images as the kernels read them that make their pixels.
class GpuPlans {
 public:
  /// For images [first, end) of the batch, which must outlive this.
  GpuPlans(const Batch& batch, size_t first, size_t end);
  size_t bytes() const { return bytes_; }

  /// Writes the plans. pixels: where on the device the decoded image of each of files_of() will be. out: [bytes()].
  void write(const std::vector<uint8_t*>& pixels, uint8_t* out) const;

  /// Returns what cuda_place() reads where plans of placed images lie, and where it writes images [first, end).
  kernels::PlaceBatch placed(const Transform& transform, const uint8_t* plans, uint8_t* images) const;

  /// Enqueues making the images of plans that were copied to the device. transform: that they go through, but for its
  /// size, which is the batch's. images: uint8 [batch.size, H, W, C], of which [first, end) are written.
  void enqueue(const Transform& transform, const uint8_t* device_plans, uint8_t* images, CudaStream stream) const;

 private:
  void write_crops(const std::vector<uint8_t*>& pixels, uint8_t* out) const;
  void write_placed(const std::vector<uint8_t*>& pixels, uint8_t* out) const;

  uint8_t* own_images(const Transform& transform, uint8_t* images) const;

  const Batch& batch_;
  const size_t first_, end_;
  size_t tiles_ = 0, filters_ = 0, bytes_ = 0;  // where these begin; a plan for each image comes before
};

/// Makes the batches of data.decode: gpu.
class GpuImages {
 public:
  static constexpr int kLanes = 4;  ///< batches that may be under way at a time

  /// Tells the user who decodes. `data` must outlive it. A batch whose decoded images take more than `most_bytes` is
  /// made in parts. Throws Error(promise) if nvJPEG does not start.
  explicit GpuImages(const RunData& data, size_t most_bytes = size_t{1} << 30);

  /// Enqueues making the images of a planned batch as uint8 [N, H, W, C]. `before_writing` makes `stream` wait until
  /// nobody reads `images`; decoding does not. The lane's last batch must have ended. Throws Error(data) naming a file
  /// that is damaged.
  void make(Batch& batch, int lane, uint8_t* images, CudaStream stream, const std::function<void()>& before_writing);

  /// Tells the user, once, how many of the images so far the CPU decoded and why, if it did.
  void tell();

 private:
  /// Memory of a batch that is under way.
  struct Lane {
    PinnedBuffer files, plans;
    DeviceBuffer pixels, device_plans;
    Event made;
  };
  size_t end_of_part(Batch& batch, size_t first) const;
  /// Makes images [first, end) of the batch.
  void make_part(Batch& batch, size_t first, size_t end, int lane, uint8_t* images, CudaStream stream,
                 const std::function<void()>& before_writing);
  /// Enqueues decoding files[i] to pixels[i].
  void decode(const std::vector<PlannedFile>& files, const std::vector<uint8_t*>& pixels, int lane, CudaStream stream);

  const RunData& data_;
  const size_t most_bytes_;
  NvJpeg nvjpeg_;
  std::array<Lane, kLanes> lanes_;
  size_t total_ = 0;
  std::map<std::string, size_t> by_cpu_;  // images, by why
  bool told_ = false;
};

}  // namespace octet
