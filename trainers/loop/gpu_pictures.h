// SPDX-License-Identifier: Apache-2.0
// data.decode: gpu. Files of images become batches of pixels on the GPU: nvJPEG decodes them, or the CPU those that it
// does not, and one kernel makes of them what the loader makes on the CPU: crops, or images placed as a whole, in
// mosaics and mixed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/cuda/memory.h"
#include "src/cuda/nvjpeg.h"
#include "src/cuda/stream.h"
#include "src/data/loader.h"
#include "src/recipe/run.h"
#include "trainers/loop/gpu_plans.h"

namespace octet {

/// Returns why data.decode: gpu is not possible for this data, transform and machine, with the cure, or "".
std::string why_not_decoded(const RunData& data);

class GpuPictures {
 public:
  static constexpr int kLanes = 4;  ///< batches that may be under way at a time

  /// Tells the user who decodes. `data` must outlive it. A batch whose decoded images take more than `most_bytes` is
  /// made in parts. Throws Error(promise) if nvJPEG does not start.
  explicit GpuPictures(const RunData& data, size_t most_bytes = size_t{1} << 30);

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
