// Engines that measure another library's convolutions beside octet's: what such peers ask of a network alike.
#pragma once

#include <string>
#include <vector>

#include "src/engine/cuda/group_steps.h"
#include "src/engine/engine.h"

namespace octet {

/// Why `library`, which runs conv2d and linear of int8 codes and pads with 0, cannot take the node's operator or the
/// codes that it reads and writes; or "".
std::string peer_fault(const Int8Graph& graph, int node, const std::string& library);

/// CompileOptions::fallback is none or cuda, CompileOptions::kernels one of `kernels`, and each node runs somewhere.
/// Throws as check_compile() does.
void check_peer(const Engine& engine, const Int8Graph& graph, const CompileOptions& options,
                const std::vector<std::string>& kernels);

/// cuda's steps for groups of which the peer, which stays as long, runs no node itself.
CudaGroupFactory fallback_groups(const Engine& peer);

}  // namespace octet
