// What every engine checks before it compiles.
#pragma once

#include "src/engine/engine.h"

namespace octet {

/// The limits that all engines share: logits only from nodes that compute t, one pixel large, and last.
Support common_support(const Int8Graph& graph, int node);

/// Validates the graph and asks the engine for each node and the machine. Throws Error(promise) naming the first node
/// that it does not support and why, Error(usage) for options that make no sense.
void check_compile(const Engine& engine, const Int8Graph& graph, const CompileOptions& options);

/// 1 <= batch <= max_batch, or Error(usage).
void check_batch(int batch, int max_batch);

}  // namespace octet
