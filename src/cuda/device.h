// SPDX-License-Identifier: Apache-2.0
// The GPUs that this process sees, which of them a thread works on, and the energy that they use. No CUDA types, so
// that every layer may include this.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace octet {

namespace kernels {
struct CudaGpu;
}

/// The oldest compute capability that octet's kernels are built for: 8.0 (Ampere) has asynchronous copies and int8 mma.
inline constexpr int kOldestCapability = 80;

/// Stands for the GPU that is current in the calling thread, as cudaSetDevice() or PyTorch chose it; by default GPU 0.
inline constexpr int kCurrentGpu = -1;

struct GpuStatus {
  bool usable = false;
  std::string reason;  ///< why not: no driver, driver too old, no GPU, no GPU of this number, GPU too old
  std::string name;    ///< "NVIDIA H200"
  int capability = 0;  ///< 90 for compute capability 9.0
  int multiprocessors = 0;
  size_t memory_bytes = 0;
  int driver = 0, runtime = 0;  ///< CUDA versions: 13000 for 13.0
  int visible = 0;              ///< number of GPUs that this process sees
  /// The highest clocks, in kHz, and the width of the memory's bus, in bits; 0 where the driver does not tell.
  int clock_khz = 0, memory_clock_khz = 0, memory_bus_bits = 0;
  bool integrated = false;  ///< it uses the processor's memory
};

/// Returns the number of the calling thread's current GPU among those that CUDA shows to this process (chosen by
/// CUDA_VISIBLE_DEVICES); 0 if there is none.
int current_gpu();

/// Returns what is known of a GPU, which is asked once. Never throws: a number that no GPU has gives a status that is
/// not usable and says how many GPUs there are.
const GpuStatus& gpu_status(int gpu = kCurrentGpu);

/// Returns the calling thread's current GPU in the form in which kernels take it (kernels/conv/conv2d.h).
kernels::CudaGpu this_gpu();

/// Makes a GPU current in this thread while the guard lives: memory, streams, events and launches go to it. Then the
/// previous GPU is current again. Unlike cudaSetDevice() and back, which would cost some hundred MB on each GPU that a
/// thread comes from, this touches no other GPU. Guards can be nested.
class GpuGuard {
 public:
  /// `gpu` is a number or kCurrentGpu. Throws Error(promise) with gpu_status()'s reason when it cannot be used.
  explicit GpuGuard(int gpu);
  ~GpuGuard();
  GpuGuard(const GpuGuard&) = delete;
  GpuGuard& operator=(const GpuGuard&) = delete;
};

/// Waits for all work on the current GPU. Returns false if that failed; then this process can no longer use the GPU.
bool gpu_finishes_its_work();

/// While it lives, a profiler that waits for it records launches: ncu --profile-from-start off.
class ProfiledRange {
 public:
  ProfiledRange();
  ~ProfiledRange();
  ProfiledRange(const ProfiledRange&) = delete;
  ProfiledRange& operator=(const ProfiledRange&) = delete;
};

/// Returns the joules that the calling thread's current GPU has used since its driver was loaded, by all processes and
/// while idle: NVML's nvmlDeviceGetTotalEnergyConsumption (Volta and newer), which is updated about every 100 ms.
/// Returns nothing if there is no GPU, no NVML (libnvidia-ml.so.1 of the driver) or no such counter.
std::optional<double> gpu_joules();

}  // namespace octet
