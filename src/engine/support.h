// What every engine checks before it compiles.
#pragma once

#include "src/engine/engine.h"

namespace octet {

/// Validates the graph and asks the engine for each node and the machine. Throws Error(promise) naming the first node
/// that it does not support and why, Error(usage) for options that make no sense.
/// Nodes that the engine does not support may run on `fallback` instead.
void check_compile(const Engine& engine, const Int8Graph& graph, const CompileOptions& options,
                   const Engine* fallback = nullptr);

/// 1 <= batch <= max_batch, or Error(usage).
void check_batch(int batch, int max_batch);

}  // namespace octet
