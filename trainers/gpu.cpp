// SPDX-License-Identifier: Apache-2.0
#include "trainers/gpu.h"

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fmt/core.h>

#include <cstdlib>

#include "src/base/error.h"

#if OCTET_CUDA
#include <c10/cuda/CUDACachingAllocator.h>

#include "src/cuda/device.h"
#endif

namespace octet {
namespace {

struct Usable {
  bool ok = false;
  std::string why_not, name;
  int visible = 0;
};

#if OCTET_CUDA
Usable usable_gpu() {
  const GpuStatus& status = gpu_status(0);  // choose_device() returns this GPU
  return {status.usable, status.reason, status.name, status.visible};
}
#else
Usable usable_gpu() { return {false, "this octet is built without CUDA (-DOCTET_CUDA=ON)", ""}; }
#endif

}  // namespace

at::Device choose_device(const std::string& name) {
  if (name == "cpu") return at::kCPU;
  const Usable gpu = usable_gpu();
  if (gpu.ok) return {at::kCUDA, 0};
  if (name == "auto") return at::kCPU;
  throw usage_error(fmt::format("--device {}: {}; use --device cpu (octet doctor tells more)", name, gpu.why_not));
}

at::Device choose_device_of_rank(const std::string& name, int processes, int processes_here) {
  if (name == "cpu") return at::kCPU;
  const Usable gpu = usable_gpu();
  if (!gpu.ok)
    throw usage_error(
        fmt::format("{} processes train on a GPU each: {}; on the CPU with --device cpu", processes, gpu.why_not));
  if (gpu.visible < processes_here)
    throw usage_error(
        fmt::format("{} processes train on a GPU each, and {} can be seen here; start fewer, look at "
                    "CUDA_VISIBLE_DEVICES, or train on the CPU with --device cpu",
                    processes, gpu.visible));
  return {at::kCUDA, 0};
}

void take_all_queues() { ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0); }

void set_switches(at::Device device, const CudaRecipe& recipe) {
  if (device.is_cpu()) return;
  at::Context& context = at::globalContext();
  context.setBenchmarkCuDNN(recipe.benchmark && !recipe.deterministic);
  context.setDeterministicCuDNN(recipe.deterministic);
  context.setAllowTF32CuDNN(recipe.tf32);
  context.setAllowTF32CuBLAS(recipe.tf32);
  // Operators without a deterministic version refuse to run, instead of quietly breaking the promise.
  context.setDeterministicAlgorithms(recipe.deterministic, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);
  // cuBLAS reads this when it starts (its documentation, "Results reproducibility").
  if (recipe.deterministic) ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
}

std::string device_name(at::Device device) { return device.is_cpu() ? "cpu" : usable_gpu().name; }

std::string describe_device(at::Device device) {
#if OCTET_CUDA
  if (device.is_cpu() && !usable_gpu().ok) return fmt::format("cpu ({})", usable_gpu().why_not);
#endif
  return device_name(device);
}

OwnStream::OwnStream(at::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl gpu(device.type());
  gpu.synchronizeDevice(device.index());
  // All phases share one stream: LibTorch keeps a cuBLAS work space of some 70 MB for every stream that used cuBLAS.
  static const c10::Stream kStream = gpu.getStreamFromGlobalPool(device);
  guard_.reset_stream(kStream);
}

OwnStream::~OwnStream() {
  if (!guard_.current_stream()) return;
  try {
    guard_.current_stream()->synchronize();
  } catch (const std::exception&) {  // the GPU failed: an earlier call has thrown already, or the next one will
  }
}

void rethrow_explained() try { throw; } catch (const c10::OutOfMemoryError& error) {
  throw promise_error(
      fmt::format("the GPU is out of memory; lower calibrate.batch_size or evaluate.batch_size, or free the GPU ({})",
                  error.what_without_backtrace()));
} catch (const c10::Error& error) {
  throw promise_error(fmt::format("LibTorch: {}", error.what_without_backtrace()));
}

#if OCTET_CUDA
namespace allocator = c10::cuda::CUDACachingAllocator;

constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

/// LibTorch's allocator throws "Invalid device argument" until LibTorch has used the GPU.
void wake(at::Device device) { at::globalContext().lazyInitDevice(device.type()); }

bool gpu_works(at::Device device) { return device.is_cpu() || gpu_finishes_its_work(); }

GpuMemory gpu_memory(at::Device device) {
  if (device.is_cpu()) return {};
  wake(device);
  const auto held = static_cast<size_t>(allocator::getDeviceStats(device.index()).reserved_bytes[kAll].current);
  const auto [free, total] = allocator::get()->getMemoryInfo(device.index());
  const auto allowed = static_cast<size_t>(allocator::getMemoryFraction(device.index()) * static_cast<double>(total));
  return {.held = held, .free = std::min(free, allowed - std::min(allowed, held)), .total = total};
}

PeakGpuMemory peak_gpu_memory(at::Device device) {
  if (device.is_cpu()) return {};
  wake(device);
  const auto stats = allocator::getDeviceStats(device.index());
  return {.held = static_cast<size_t>(stats.reserved_bytes[kAll].peak),
          .in_tensors = static_cast<size_t>(stats.allocated_bytes[kAll].peak)};
}

void forget_peak(at::Device device) {
  if (device.is_cpu()) return;
  wake(device);
  allocator::resetPeakStats(device.index());
}

void release_cached(at::Device device) {
  if (device.is_cpu()) return;
  wake(device);
  allocator::emptyCache();
}
#else
bool gpu_works(at::Device) { return true; }
GpuMemory gpu_memory(at::Device) { return {}; }
PeakGpuMemory peak_gpu_memory(at::Device) { return {}; }
void forget_peak(at::Device) {}
void release_cached(at::Device) {}
#endif

}  // namespace octet
