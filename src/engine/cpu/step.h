// One node of a compiled network on the CPU: cut into tasks that threads share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/codes.h"
#include "kernels/conv2d_int8/cpu_conv2d.h"
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
  virtual std::string kernel() const = 0;               ///< for LayerInfo
  virtual size_t workspace_bytes() const { return 0; }  ///< scratch each thread needs
  virtual int tasks(int images) const = 0;              ///< independent pieces
  virtual void run(const StepData& data, kernels::Range tasks, void* workspace) const = 0;
  /// The same on the same packed weights, with a look-up of every code that it writes; null if it is no convolution.
  virtual std::unique_ptr<CpuStep> with_lookup(const kernels::LookupTable&) const { return nullptr; }
};

/// The step of a node of a graph with unsigned edges, or null when its output shares its input's memory. Packs weights:
/// the graph may go away afterwards. Throws Error(promise) for an operator it does not know.
std::unique_ptr<CpuStep> make_cpu_step(const Lowering& lowering, int node, kernels::CpuIsa isa);

}  // namespace octet
