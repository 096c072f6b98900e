// The GPU of this machine. No CUDA types, so that every layer may ask.
#pragma once

#include <cstddef>
#include <string>

namespace octet {

/// Oldest GPU that octet's kernels are built for: asynchronous copies and int8 mma (compute capability 8.0, Ampere).
inline constexpr int kOldestCapability = 80;

struct GpuStatus {
  bool usable = false;
  std::string reason;  ///< why not: no driver, driver too old, no GPU, GPU too old
  std::string name;    ///< "NVIDIA H200"
  int capability = 0;  ///< 90 for compute capability 9.0
  int multiprocessors = 0;
  size_t memory_bytes = 0;
  int driver = 0, runtime = 0;  ///< CUDA versions: 13000 for 13.0
  int visible = 0;              ///< GPUs, this one included
};

/// The first visible GPU (CUDA_VISIBLE_DEVICES chooses). Asked once; never throws.
const GpuStatus& gpu_status();

/// Waits for all work on the current GPU; false when that failed: then nothing works on it in this process any more.
bool gpu_finishes_its_work();

}  // namespace octet
