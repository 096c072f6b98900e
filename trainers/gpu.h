// The device a run trains on, and what training asks of a GPU.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/StreamGuard.h>

#include <cstddef>
#include <string>

#include "src/recipe/recipe.h"

namespace octet {

/// "auto": the GPU if this build and this machine can use one, else the CPU. Throws Error(usage) with the reason for
/// "cuda" where neither can.
at::Device choose_device(const std::string& name);

/// choose_device() for one of `processes` that train together, a GPU each: "auto" is "cuda". Throws Error(usage) where
/// there is none for it, or fewer than `processes_here` for those of this host that look for theirs together.
at::Device choose_device_of_rank(const std::string& name, int processes, int processes_here = 1);

/// cuDNN's and TF32's switches of this process, as the recipe says. Nothing for the CPU.
void set_switches(at::Device device, const CudaRecipe& recipe);

std::string device_name(at::Device device);  ///< "NVIDIA H200", "cpu"

/// device_name() for people: the CPU, in a build with CUDA, with the reason why no GPU can be used, if there is one.
/// "cpu (no NVIDIA driver)"
std::string describe_device(at::Device device);

/// While it lives, this thread's LibTorch operators run on a stream of their own: CUDA graphs cannot be captured on the
/// default one. Begins after all work before it, and the work after it begins when it is done. Nothing for the CPU.
class OwnStream {
 public:
  explicit OwnStream(at::Device device);
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

 private:
  c10::OptionalStreamGuard guard_;
};

bool gpu_works(at::Device device);  ///< false: it failed, and nothing works on it in this process; true for the CPU

/// Bytes of the GPU's memory; all 0 for the CPU.
struct GpuMemory {
  size_t held = 0;  ///< by LibTorch's allocator in this process: tensors, captured graphs and what it keeps for reuse
  size_t free = 0;  ///< that it may still ask for
  size_t total = 0;
};
GpuMemory gpu_memory(at::Device device);

struct PeakGpuMemory {  ///< since forget_peak()
  size_t held = 0, in_tensors = 0;
};
PeakGpuMemory peak_gpu_memory(at::Device device);
void forget_peak(at::Device device);

void release_cached(at::Device device);  ///< gives back what no tensor uses; waits for the GPU

}  // namespace octet
