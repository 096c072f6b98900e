// What every engine checks before it compiles.
#pragma once

#include "src/engine/engine.h"

namespace octet {

/// For an engine that may leave nodes to another.
struct Fallback {
  const Engine* engine = nullptr;  ///< null: none was chosen
  std::string cure;                ///< how to choose one; ends the error about a node that nobody runs
};

/// Validates the graph and asks the engine for each node and the machine. Throws Error(promise) naming the first node
/// that it does not support and why, Error(usage) for options that make no sense. Nodes that the engine does not
/// support may run on the fallback instead, but not all of them: what runs under an engine's name is its own work.
void check_compile(const Engine& engine, const Int8Graph& graph, const CompileOptions& options,
                   const Fallback& fallback = {});

/// 1 <= batch <= max_batch, or Error(usage).
void check_batch(int batch, int max_batch);
/// Memory for as many outputs as the graph has, or Error(usage).
void check_outputs(const OutputMemory& outputs, size_t expected);
/// Room for one more batch, or Error(usage).
void check_submit(size_t submitted);
/// Something to collect, or Error(usage).
void check_collect(size_t submitted);
/// Batch and outputs: what every Program::run asks first.
void check_run(int batch, int max_batch, const OutputMemory& outputs, size_t expected);

}  // namespace octet
