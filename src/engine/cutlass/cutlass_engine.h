// NVIDIA's CUTLASS as a peer: fused int8 convolutions from its templates for Hopper, compiled into octet when it is
// configured with OCTET_CUTLASS.
#pragma once

#include "src/engine/engine.h"

namespace octet {

class CutlassEngine final : public Engine {
 public:
  std::string_view name() const override { return "cutlass"; }
  Support available() const override { return available_on(kCurrentGpu); }
  Support available_on(int gpu) const override;  ///< compute capability 9.0, and a build with OCTET_CUTLASS
  bool on_gpu() const override { return true; }
  /// The epilogue is octet's rule, but what else CUTLASS does with codes is its own: differences are counted.
  bool exact() const override { return false; }
  /// Convolutions, and linears that write codes, of int8 codes with zero point 0; what else a network has,
  /// options.fallback may run.
  Support supports(const Int8Graph& graph, int node) const override;
  /// Also throws Error(promise) when all nodes would be the fallback's, Error(usage) for an unknown options.fallback or
  /// options.kernels.
  void check(const Int8Graph& graph, const CompileOptions& options) const override;
  std::unique_ptr<Program> compile(const Int8Graph& graph, const CompileOptions& options) const override;
};

}  // namespace octet
