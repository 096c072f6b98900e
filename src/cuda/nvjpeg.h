// SPDX-License-Identifier: Apache-2.0
// JPEG files decoded by the GPU: nvJPEG of the CUDA toolkit, which is loaded when it is first asked for. No CUDA types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/core/cuda.h"

namespace octet {

/// Returns why nvJPEG cannot be used here, with the cure, or "".
std::string why_no_nvjpeg();

/// A file, and where its pixels go.
struct EncodedJpeg {
  const uint8_t* data = nullptr;  ///< on the host; page-locked memory is copied faster
  size_t bytes = 0;
  uint8_t* pixels = nullptr;  ///< on the device: [height, width, channels], interleaved RGB or luminance
  int height = 0, width = 0;  ///< a file of another size is refused
};

/// Decodes batches by the GPU's own JPEG engines where it has some (A100, H100, H200 and newer data-center GPUs) and
/// its driver has libnvcuvid.so.1, else by its cores.
class NvJpeg {
 public:
  /// For `lanes` batches that may be under way at a time, on the current GPU. Throws Error(promise) with
  /// why_no_nvjpeg(), or naming what nvJPEG refuses.
  NvJpeg(int channels, int lanes);
  ~NvJpeg();
  NvJpeg(const NvJpeg&) = delete;
  NvJpeg& operator=(const NvJpeg&) = delete;

  /// Returns who decodes: "nvJPEG 13.0 by 7 engines of the GPU", or by its cores and why.
  std::string describe() const;

  /// Files that were left out, as places in the batch.
  struct Refused {
    std::vector<size_t> files;
    std::string why;  ///< "refused by nvJPEG" and the like
  };
  /// Enqueues decoding on `stream`, and returns the files that nvJPEG cannot decode: of a damaged one's batch, all. The
  /// engines write when this is called, whatever `stream` still has to do (seen up to nvJPEG 13.2): the pixels' memory
  /// must be unused by then, and the lane's last batch must have ended. The files stay as they are until it has.
  Refused decode(int lane, std::span<const EncodedJpeg> files, CudaStream stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace octet
