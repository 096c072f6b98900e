// SPDX-License-Identifier: Apache-2.0
// The plans of a batch's images (src/data/picture_plan.h, src/data/placed_plan.h) as the kernels read them that make
// their pixels: written into one piece of memory, which is copied to the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/core/cuda.h"
#include "kernels/operators/place.h"
#include "src/cuda/memory.h"
#include "src/data/loader.h"
#include "src/data/transform.h"

namespace octet {

/// Returns the bytes that pieces of memory are apart which take `bytes` each.
inline size_t aligned(size_t bytes) { return (bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment; }

/// An image file of a batch, one of several where images are mosaics or mixed.
struct PlannedFile {
  PictureFile* picture = nullptr;
  size_t index = 0;  ///< into the data set
};

/// Returns the files of images [first, end) of a planned batch, in the order of their plans.
std::vector<PlannedFile> files_of(Batch& batch, size_t first, size_t end);

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
  size_t tiles_ = 0, filters_ = 0, bytes_ = 0;  // where these begin; a picture for each image comes before
};

}  // namespace octet
