// SPDX-License-Identifier: Apache-2.0
// One node of a network compiled for the CPU: a kernel whose work is cut into tasks that threads share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/conv/cpu_conv2d.h"
#include "kernels/core/codes.h"
#include "src/engine/lowering.h"

namespace octet {

/// The tensors of one call: uint8 [images, H, W, cpu_channel_stride(C)], one pointer an input of the node; for the
/// input node the pixels [images, H, W, C]. A node with float_output writes float32 [images, H, W, C].
struct StepData {
  int images = 0;
  const uint8_t* const* inputs = nullptr;
  void* output = nullptr;
};

class CpuStep {
 public:
  virtual ~CpuStep() = default;
  virtual std::string kernel() const = 0;               ///< the kernel's name for LayerInfo
  virtual size_t workspace_bytes() const { return 0; }  ///< scratch that each thread needs
  virtual int tasks(int images) const = 0;              ///< number of independent pieces of the work
  /// Computes the tasks of the range. `workspace` is the thread's scratch, aligned to 64 bytes.
  virtual void run(const StepData& data, kernels::Range tasks, void* workspace) const = 0;
  /// Returns a convolution's step with the same packed weights that also looks up every code it writes; null for
  /// other steps.
  virtual std::unique_ptr<CpuStep> with_lookup(const kernels::LookupTable&) const { return nullptr; }
};

/// Returns the step of a node of a graph with unsigned edges, or null if its output shares its input's memory. The step
/// holds packed weights: the graph may be destroyed afterwards. Throws Error(promise) for an unknown operator.
std::unique_ptr<CpuStep> make_cpu_step(const Lowering& lowering, int node, kernels::CpuIsa isa);

}  // namespace octet
