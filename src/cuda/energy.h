// What the GPU has drawn, by its own counter.
#pragma once

#include <optional>

namespace octet {

/// Joules that the calling thread's current GPU has drawn since its driver was loaded, idle time and all who use it
/// included: NVML's nvmlDeviceGetTotalEnergyConsumption (Volta and newer), which the GPU refreshes about every 100 ms.
/// Nothing where there is no GPU, no NVML (libnvidia-ml.so.1, a part of the driver) or no such counter.
std::optional<double> gpu_joules();

}  // namespace octet
