// NVIDIA's cuDNN as a peer: fused int8 convolutions by its graph API, linears by cuBLASLt. Codes may differ from the
// reference, because cuDNN multiplies and adds where the rule has one fma.
#pragma once

#include "src/engine/engine.h"

namespace octet {

class CudnnEngine final : public Engine {
 public:
  std::string_view name() const override { return "cudnn"; }
  Support available() const override { return available_on(kCurrentGpu); }
  Support available_on(int gpu) const override;  ///< and whether the loader finds cuDNN 9 and cuBLASLt 13
  bool on_gpu() const override { return true; }
  bool exact() const override { return false; }
  /// Convolutions and linears of int8 codes with zero point 0; what else a network has, options.fallback may run.
  Support supports(const Int8Graph& graph, int node) const override;
  /// Also throws Error(promise) when all nodes would be the fallback's, Error(usage) for an unknown options.fallback or
  /// options.kernels.
  void check(const Int8Graph& graph, const CompileOptions& options) const override;
  std::unique_ptr<Program> compile(const Int8Graph& graph, const CompileOptions& options) const override;
};

}  // namespace octet
