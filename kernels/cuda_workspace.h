// Device memory that kernels of one stream share for sums in parts.
#pragma once

#include <cstddef>

namespace octet::kernels {

/// At the head of a workspace: counters, 0 between launches. They are zeroed once when the workspace is allocated, and
/// every kernel leaves them zeroed; the rest may hold anything.
inline constexpr size_t kCudaWorkspaceZeros = 4096;

}  // namespace octet::kernels
