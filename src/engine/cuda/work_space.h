// Scratch of a compiled network on the GPU, one for all batch sizes: their runs follow one another on one stream.
#pragma once

#include "src/cuda/memory.h"
#include "src/cuda/stream.h"
#include "src/engine/cuda/step.h"

namespace octet {

class WorkSpace {
 public:
  /// Grows to what `step`, prepared for `images`, asks for. Throws OutOfGpuMemory and is then as before.
  void make_room(const CudaStep& step, int images, const Stream& stream);

  void* scratch() const { return scratch_.data(); }
  void* zeroed() const { return zeroed_.data(); }
  size_t bytes() const { return scratch_.bytes() + zeroed_.bytes(); }
  /// How often memory has moved: a CUDA graph captured before the last time must not run any more.
  int moves() const { return moves_; }

 private:
  DeviceBuffer scratch_, zeroed_;  ///< CudaStepData has what they promise
  int moves_ = 0;
};

}  // namespace octet
