// The GPUs that this process sees, and which of them a thread works on. No CUDA types, so that every layer may ask.
#pragma once

#include <cstddef>
#include <string>

namespace octet {

/// Oldest GPU that octet's kernels are built for: asynchronous copies and int8 mma (compute capability 8.0, Ampere).
inline constexpr int kOldestCapability = 80;

/// In place of a GPU's number: the one that is current in the calling thread, as cudaSetDevice() or PyTorch chose it;
/// 0 where nothing did.
inline constexpr int kCurrentGpu = -1;

struct GpuStatus {
  bool usable = false;
  std::string reason;  ///< why not: no driver, driver too old, no GPU, none of this number, GPU too old
  std::string name;    ///< "NVIDIA H200"
  int capability = 0;  ///< 90 for compute capability 9.0
  int multiprocessors = 0;
  size_t memory_bytes = 0;
  int driver = 0, runtime = 0;  ///< CUDA versions: 13000 for 13.0
  int visible = 0;              ///< GPUs, this one included
  /// The highest clocks, in kHz, and the width of the memory's bus, in bits; 0: the driver does not tell.
  int clock_khz = 0, memory_clock_khz = 0, memory_bus_bits = 0;
  bool integrated = false;  ///< its memory is the processor's
};

/// The number of the calling thread's current GPU among those that CUDA shows to this process (CUDA_VISIBLE_DEVICES
/// chooses them); 0 where there is none.
int current_gpu();

/// Each GPU is asked once; never throws. A number that no GPU has is a reason that says how many there are.
const GpuStatus& gpu_status(int gpu = kCurrentGpu);

/// While it lives, what its thread asks of CUDA goes to one GPU: memory, streams, events, launches. Then it goes where
/// it went before, and no other GPU has been touched: cudaSetDevice() and back would take some hundred MB of each GPU
/// that a thread comes from. Guards may stand inside of each other.
class GpuGuard {
 public:
  /// `gpu`: a number, or kCurrentGpu. Throws Error(promise) with gpu_status()'s reason when it cannot be used.
  explicit GpuGuard(int gpu);
  ~GpuGuard();
  GpuGuard(const GpuGuard&) = delete;
  GpuGuard& operator=(const GpuGuard&) = delete;
};

/// Waits for all work on the current GPU; false when that failed: then nothing works on it in this process any more.
bool gpu_finishes_its_work();

}  // namespace octet
