// SPDX-License-Identifier: Apache-2.0
// For those who implement engines: the engines that exist, and the checks that all of them do.
#pragma once

#include "src/engine/engine.h"

namespace octet {

/// The definition: every node by its kernel's reference implementation, one image a task.
const Engine& reference_engine();

/// int8 on x86-64 and aarch64 processors: packed convolutions, planned memory, one thread pool. Its paths, one for each
/// instruction set, give the same bytes.
const Engine& cpu_engine();

/// int8 on NVIDIA GPUs from Ampere on: octet's own kernels, chosen by measurement, with the reference's bytes at every
/// node. This engine and the two below exist in builds with OCTET_CUDA only.
const Engine& cuda_engine();

/// NVIDIA's cuDNN, to compare with: fused int8 convolutions by its graph API, linears by cuBLASLt. Codes may differ
/// from the reference, because cuDNN multiplies and adds where the rounding rule has one fma.
const Engine& cudnn_engine();

/// NVIDIA's CUTLASS, to compare with: fused int8 convolutions from its templates for Hopper, compiled into octet if
/// OCTET_CUTLASS is on.
const Engine& cutlass_engine();

/// The engine that runs the nodes that another does not support.
struct Fallback {
  const Engine* engine = nullptr;  ///< null: none was chosen
  std::string cure;                ///< how to choose one; ends the error about a node that no engine runs
};

/// Validates the graph, the options and the machine, and asks the engine for each node. Throws Error(promise) with the
/// name of the first node that neither the engine nor the fallback supports and the reason, also if the fallback would
/// run all nodes: what runs under an engine's name is its own work. Throws Error(usage) for impossible options.
void check_compile(const Engine& engine, const Int8Graph& graph, const CompileOptions& options,
                   const Fallback& fallback = {});

/// The checks below throw Error(usage).
void check_batch(int batch, int max_batch);                        ///< 1 <= batch <= max_batch
void check_outputs(const OutputMemory& outputs, size_t expected);  ///< as many outputs as the graph has
void check_submit(size_t submitted);                               ///< room for one more batch
void check_collect(size_t submitted);                              ///< at least one batch to collect
void check_run(int batch, int max_batch, const OutputMemory& outputs, size_t expected);  ///< batch and outputs

}  // namespace octet
