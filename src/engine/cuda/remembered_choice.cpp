#include "src/engine/cuda/remembered_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "src/cuda/device.h"
#include "src/engine/kernel_cache.h"

namespace octet {
namespace {

// Raised whenever the way of timing changes, or what is kept: what the old one chose is measured anew.
constexpr int kTiming = 4;

// Kernels are among what a time depends on: a changed one may have the name that it had.
std::string signature(const std::string& work, const std::vector<std::string>& names) {
  const GpuStatus& gpu = gpu_status();
  return fmt::format("octet {}, kernels {}, timing {}, {}, {} multiprocessors of {}, driver {}, runtime {}: {}: {}",
                     OCTET_VERSION, OCTET_KERNEL_SOURCES, kTiming, gpu.name, gpu.multiprocessors, gpu.capability,
                     gpu.driver, gpu.runtime, work, fmt::join(names, " "));
}

}  // namespace

size_t remembered_choice(const std::string& work, const std::vector<std::string>& names,
                         const std::function<MeasuredChoice()>& measure) {
  static std::mutex mutex;
  static std::map<std::string, std::string> known;  // names by signature
  if (names.size() == 1) return 0;
  const std::string key = signature(work, names), folder = kernel_cache();
  const auto index_of = [&](const std::string& name) -> std::optional<size_t> {
    const auto found = std::find(names.begin(), names.end(), name);
    return found == names.end() ? std::nullopt : std::optional(static_cast<size_t>(found - names.begin()));
  };
  {
    const std::scoped_lock lock(mutex);
    if (const auto found = known.find(key); found != known.end()) return *index_of(found->second);
  }
  std::optional<size_t> chosen = index_of(cached_kernel(folder, key).value_or(""));
  if (!chosen) {
    const MeasuredChoice measured = measure();
    chosen = measured.fastest;
    if (measured.for_later) cache_kernel(folder, key, names[*chosen]);
  }
  const std::scoped_lock lock(mutex);
  return *index_of(known.emplace(key, names[*chosen]).first->second);
}

}  // namespace octet
