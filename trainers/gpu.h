// SPDX-License-Identifier: Apache-2.0
// The device that a run trains on, and what training needs to know about a GPU: switches, stream, memory, failures.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/StreamGuard.h>

#include <cstddef>
#include <exception>
#include <string>

#include "src/recipe/recipe.h"

namespace octet {

/// Returns the device that --device names. "auto" is the GPU if this build and this machine can use one, else the CPU.
/// Throws Error(usage) with the reason when "cuda" is asked for and no GPU can be used.
at::Device choose_device(const std::string& name);

/// Returns the device of one of `processes` that train together with a GPU each; "auto" means "cuda" here. Throws
/// Error(usage) when no GPU can be used, or when fewer than `processes_here` GPUs are visible.
at::Device choose_device_of_rank(const std::string& name, int processes, int processes_here = 1);

/// Sets this process's switches of cuDNN and TF32 as the recipe says. Does nothing for the CPU.
void set_switches(at::Device device, const CudaRecipe& recipe);

/// Gives streams all hardware queues that CUDA knows, 32 in place of 8; once CUDA has begun in this process it does
/// nothing. Work in a queue waits for all that was launched there before, also by another stream, and a recorded step
/// is launched as a whole: with 8 queues nvJPEG, which has many streams, began with a batch when the running step had
/// ended.
void take_all_queues();

std::string device_name(at::Device device);  ///< "NVIDIA H200", "cpu"

/// Returns device_name() for messages. In a build with CUDA the CPU's name comes with the reason why no GPU can be
/// used, if there is one: "cpu (no NVIDIA driver)".
std::string describe_device(at::Device device);

/// While it lives, LibTorch operators of this thread run on a stream other than the default one, where CUDA graphs
/// cannot be captured. The stream starts after all earlier work, and later work starts after it. Does nothing on a CPU.
class OwnStream {
 public:
  explicit OwnStream(at::Device device);
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

 private:
  c10::OptionalStreamGuard guard_;
};

bool gpu_works(at::Device device);  ///< false once the GPU has failed in this process; always true for the CPU

/// Bytes of the GPU's memory; all 0 for the CPU.
struct GpuMemory {
  size_t held = 0;  ///< by LibTorch's allocator in this process: tensors, captured graphs and cached blocks
  size_t free = 0;  ///< that the allocator may still ask for
  size_t total = 0;
};
GpuMemory gpu_memory(at::Device device);

/// Largest numbers of bytes since forget_peak(); 0 for the CPU.
struct PeakGpuMemory {
  size_t held = 0, in_tensors = 0;
};
PeakGpuMemory peak_gpu_memory(at::Device device);
void forget_peak(at::Device device);

void release_cached(at::Device device);  ///< gives back memory that no tensor uses; waits for the GPU

/// Call it in a handler: throws the current exception again. Exceptions of LibTorch become an Error(promise) without
/// their backtrace; running out of memory says what to lower. (Phases and programs explain their own failures better.)
[[noreturn]] void rethrow_explained();

/// Runs the work of a command and returns its result. What it throws passes through rethrow_explained().
template <typename Work>
auto explain_failures(const Work& work) {
  try {
    return work();
  } catch (const std::exception&) {
    rethrow_explained();
  }
}

}  // namespace octet
